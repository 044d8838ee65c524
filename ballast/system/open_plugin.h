// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/system/file.h"

namespace ballast {

// A shared library that was opened while the program runs; it stays open.
struct OpenedPlugin {
  void* entry = nullptr;    // what the symbol stands for; without a symbol, the library
  std::string reason = {};  // why there is none
  bool is_missing = false;  // because there is no such file
};

// `symbol`: null for a library that registers itself. `flags`: dlopen's.
OpenedPlugin open_plugin(const fs::path& path, const char* symbol, int flags);

}  // namespace ballast
