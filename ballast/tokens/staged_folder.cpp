// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "ballast/system/error.h"
#include "ballast/tokens/token_dataset.h"

namespace ballast::tokens {
namespace {

constexpr const char* kLockFile = "lock";

fs::path normalized(const fs::path& target) {
  fs::path path = fs::weakly_canonical(fs::absolute(target));  // links: where they lead to
  return path.has_filename() ? path : path.parent_path();      // "out/" means "out"
}

fs::path sibling(const fs::path& target, std::string_view suffix) {
  return target.parent_path() / fmt::format(".{}{}", target.filename().string(), suffix);
}

void sync_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int code = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) fail("cannot write {}: {}", path.string(), std::strerror(code));
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  fail("cannot rename {} to {}: {}", from.string(), to.string(), std::strerror(errno));
}

bool is_ours(const fs::path& folder) {
  const fs::path index = folder / TokenDataset::kIndexFile;
  return fs::is_regular_file(index) && read_text(index).find("ballast-tokens") != std::string::npos;
}

bool is_part_of_data_set(const fs::directory_entry& entry) {
  static const std::set<fs::path> kNames = {TokenDataset::kIndexFile,
                                            "tokenizer.json",
                                            "tokenizer_config.json",
                                            "vocab.json",
                                            "merges.txt",
                                            kLockFile};
  const fs::path name = entry.path().filename();
  return entry.is_regular_file() && (kNames.contains(name) || name.extension() == ".tokens");
}

}  // namespace

ParentFolders::ParentFolders(const fs::path& folder) {
  for (fs::path path = folder; !fs::exists(path); path = path.parent_path()) made_.push_back(path);
  make_folder(folder);
}

ParentFolders::~ParentFolders() {
  std::error_code ignored;  // a folder that is in use is not empty and stays
  for (const fs::path& path : made_) fs::remove(path, ignored);
}

StagedFolder::StagedFolder(const fs::path& target, ExistingOutput existing)
    : target_(normalized(target)), staging_(sibling(target_, ".preparing")), existing_(existing) {
  check_target();
  parents_ = std::make_unique<ParentFolders>(target_.parent_path());
  do {  // once, but for a process that publishes between our opening its lock and taking it
    make_own_folder(staging_);
    lock_.reset();
    lock_ = std::make_unique<FileLock>(staging_ / kLockFile, "output folder " + target_.string());
  } while (!fs::exists(staging_ / kLockFile));
  try {
    check_target();  // that process may have made it
    remove_leftovers();
  } catch (...) {
    fs::remove_all(staging_);
    throw;
  }
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;  // what cannot be removed now is removed by the next run
  if (!published_) fs::remove_all(staging_, ignored);
}

void StagedFolder::check_target() const {
  if (!fs::exists(target_)) return;
  if (fs::is_directory(target_) && fs::is_empty(target_)) return;
  if (!fs::is_directory(target_) || !is_ours(target_)) {
    fail("{} exists and is not a data set of `ballast prepare`: choose another --out, or remove it",
         target_.string());
  }
  if (existing_ == ExistingOutput::kRefuse) {
    fail("{} exists already: choose another --out, or add --overwrite to replace it",
         target_.string());
  }
  for (const auto& entry : fs::directory_iterator(target_)) {
    if (!is_part_of_data_set(entry)) {
      fail("{} would be lost with the data set it lies in: move it, or choose another --out",
           entry.path().string());
    }
  }
}

void StagedFolder::remove_leftovers() const {
  for (const auto& entry : fs::directory_iterator(staging_)) {
    if (entry.path().filename() != kLockFile) fs::remove_all(entry.path());
  }
  if (fs::is_symlink(discarded())) fs::remove(discarded());
  if (fs::exists(discarded())) {
    // Without its successor in place the old data set is still the valid one.
    if (fs::exists(target_)) {
      fs::remove_all(discarded());
    } else {
      rename_folder(discarded(), target_);
      check_target();
    }
  }
}

fs::path StagedFolder::discarded() const { return sibling(target_, ".replaced"); }

void StagedFolder::publish() {
  for (const auto& entry : fs::directory_iterator(staging_)) sync_file(entry.path());
  sync_folder(staging_);
  check_target();
  if (fs::exists(target_) && !fs::is_empty(target_)) {
    // One step where the file system can exchange two names, otherwise two.
    if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      rename_folder(staging_, discarded());
    } else {
      rename_folder(target_, discarded());
      rename_folder(staging_, target_);
    }
  } else {
    rename_folder(staging_, target_);
  }
  published_ = true;
  sync_folder(target_.parent_path());
  fs::remove(target_ / kLockFile);
  fs::remove_all(discarded());
}

}  // namespace ballast::tokens
