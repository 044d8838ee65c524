// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ballast::comm {

// Where workers of this machine keep the memory that they share: /dev/shm, or, where that has too
// little room for them (containers), the folder for temporary files.
std::filesystem::path shared_memory_folder(int workers);

// Folders for the files that OpenMPI keeps while a job runs: killed processes leave theirs behind,
// many megabytes of memory among them. Gone with this object.
class JobFolders {
 public:
  explicit JobFolders(int workers);
  ~JobFolders();
  JobFolders(const JobFolders&) = delete;
  JobFolders& operator=(const JobFolders&) = delete;

  // For mpirun. What people have set stays; a folder that cannot be made is not among them.
  std::vector<std::string> mpirun_options() const;

 private:
  std::filesystem::path session_, shared_;
};

}  // namespace ballast::comm
