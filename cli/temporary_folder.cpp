// SPDX-License-Identifier: Apache-2.0
#include "cli/temporary_folder.h"

#include <cstdlib>
#include <string>

#include "ballast/system/error.h"

namespace ballast::cli {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "ballast-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail("cannot create a folder in {}", fs::temp_directory_path().string());
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ballast::cli
