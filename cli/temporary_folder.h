// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace ballast::cli {

// A folder in the system's temporary place, of this user alone; deleted with everything in
// it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ballast::cli
