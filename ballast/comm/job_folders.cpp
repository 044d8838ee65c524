// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/job_folders.h"

#include <sys/statvfs.h>

#include <cstdint>
#include <cstdlib>
#include <system_error>

namespace ballast::comm {
namespace {

namespace fs = std::filesystem;

// A new folder in `parent`; empty: there can be none.
fs::path new_folder(const fs::path& parent) {
  std::string name = parent / "ballast-XXXXXX";
  return ::mkdtemp(name.data()) != nullptr ? fs::path(name) : fs::path();
}

fs::path temporary_folder() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  return error ? fs::path("/tmp") : folder;
}

}  // namespace

fs::path shared_memory_folder(int workers) {
  constexpr uint64_t kBytesOfWorker = 8 << 20;  // 4 MiB, and as much to spare
  const fs::path usual = "/dev/shm";
  struct statvfs space {};
  const bool room =
      ::statvfs(usual.c_str(), &space) == 0 &&
      space.f_bavail * space.f_frsize >= static_cast<uint64_t>(workers) * kBytesOfWorker;
  return room ? usual : temporary_folder();
}

JobFolders::JobFolders(int workers)
    : session_(new_folder(temporary_folder())),
      shared_(new_folder(shared_memory_folder(workers))) {}

JobFolders::~JobFolders() {
  std::error_code error;
  for (const fs::path& folder : {session_, shared_}) {
    if (!folder.empty()) fs::remove_all(folder, error);
  }
}

std::vector<std::string> JobFolders::mpirun_options() const {
  std::vector<std::string> options;
  const auto add = [&](const std::string& name, const fs::path& folder) {
    if (!folder.empty() && std::getenv(("OMPI_MCA_" + name).c_str()) == nullptr)
      options.insert(options.end(), {"--mca", name, folder.string()});
  };
  add("orte_tmpdir_base", session_);
  add("btl_vader_backing_directory", shared_);
  return options;
}

}  // namespace ballast::comm
