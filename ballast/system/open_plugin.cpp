// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/open_plugin.h"

#include <dlfcn.h>

#include <system_error>

namespace ballast {

OpenedPlugin open_plugin(const fs::path& path, const char* symbol, int flags) {
  std::error_code error;
  if (!fs::exists(path, error)) return {nullptr, "there is no " + path.string(), true};
  void* const library = dlopen(path.c_str(), flags);
  void* const entry = library == nullptr || symbol == nullptr ? library : dlsym(library, symbol);
  if (entry != nullptr) return {.entry = entry};
  const char* const message = dlerror();
  return {nullptr, message != nullptr ? message : "dlopen failed without a reason"};
}

}  // namespace ballast
