// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/mpi_plugin.h"

#include <dlfcn.h>

namespace ballast::comm {

namespace fs = std::filesystem;

fs::path mpi_plugin_path() {
  constexpr const char* kName = "libballast_mpi.so";
  static const char here = 0;
  Dl_info library{};
  std::error_code error;
  if (dladdr(&here, &library) == 0) return fs::current_path(error) / kName;
  const fs::path file = fs::canonical(library.dli_fname, error);
  return (error ? fs::path(library.dli_fname) : file).parent_path() / kName;
}

MpiPlugin load_mpi_plugin() { return load_mpi_plugin(mpi_plugin_path()); }

MpiPlugin load_mpi_plugin(const fs::path& path) {
  MpiPlugin plugin;
  plugin.path = path;
  std::error_code error;
  if (!fs::exists(plugin.path, error)) {
    plugin.reason = "there is no " + plugin.path.string() + " (it is built where mpi.h is found)";
    return plugin;
  }
  // RTLD_GLOBAL: OpenMPI loads components of its own, which look for its symbols.
  void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* open = library == nullptr ? nullptr : dlsym(library, "ballast_open_mpi_world");
  if (open == nullptr) {
    const char* message = dlerror();
    plugin.reason = message != nullptr ? message : "dlopen failed without a reason";
  } else {
    plugin.open = reinterpret_cast<decltype(plugin.open)>(open);
  }
  return plugin;
}

}  // namespace ballast::comm
