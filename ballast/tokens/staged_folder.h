// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::tokens {

enum class ExistingOutput { kRefuse, kReplace };

// Makes the missing folders above a target. The destructor removes those that are still empty.
class ParentFolders {
 public:
  explicit ParentFolders(const fs::path& folder);  // made where missing, with all above it
  ~ParentFolders();
  ParentFolders(const ParentFolders&) = delete;
  ParentFolders& operator=(const ParentFolders&) = delete;

 private:
  std::vector<fs::path> made_;  // the innermost first
};

// A data set's folder while it is being written: under a hidden name beside its target, which it
// takes whole when published. What a killed process left there is removed by the next one.
class StagedFolder {
 public:
  // Throws UserError if the target exists and may not be replaced, or if another process is writing
  // it now. Only an empty folder, or a data set that holds nothing else, may be replaced.
  StagedFolder(const fs::path& target, ExistingOutput existing);
  ~StagedFolder();  // removes what was not published
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const fs::path& path() const { return staging_; }
  const fs::path& target() const { return target_; }
  // Makes all files durable, then gives the folder its name; an old one is replaced in one step.
  void publish();

 private:
  void check_target() const;
  void remove_leftovers() const;
  fs::path discarded() const;  // the name under which a replaced data set is deleted

  fs::path target_, staging_;
  ExistingOutput existing_;
  std::unique_ptr<ParentFolders> parents_;
  std::unique_ptr<FileLock> lock_;
  bool published_ = false;
};

}  // namespace ballast::tokens
