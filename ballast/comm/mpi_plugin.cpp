// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/mpi_plugin.h"

#include <dlfcn.h>

#include "ballast/system/open_plugin.h"

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
  // RTLD_GLOBAL: OpenMPI loads components of its own, which look for its symbols.
  const OpenedPlugin opened = open_plugin(path, "ballast_open_mpi_world", RTLD_NOW | RTLD_GLOBAL);
  plugin.open = reinterpret_cast<decltype(plugin.open)>(opened.entry);
  plugin.reason = opened.reason;
  if (opened.is_missing) plugin.reason += " (it is built where mpi.h is found)";
  return plugin;
}

}  // namespace ballast::comm
