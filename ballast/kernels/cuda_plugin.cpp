// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cuda_plugin.h"

#include <dlfcn.h>

#include "ballast/system/open_plugin.h"

namespace ballast::kernels {

namespace fs = std::filesystem;

CudaPlugin load_cuda_plugin() {
  // Beside the library that holds this function: the build folder, the lib folder of a dist, or
  // wherever a Python module put it.
  static const char here = 0;
  Dl_info library{};
  std::error_code error;
  if (dladdr(&here, &library) == 0) return load_cuda_plugin(fs::current_path(error));
  const fs::path file = fs::canonical(library.dli_fname, error);
  return load_cuda_plugin((error ? fs::path(library.dli_fname) : file).parent_path());
}

CudaPlugin load_cuda_plugin(const fs::path& folder) {
  CudaPlugin plugin;
  plugin.path = folder / "libballast_cuda.so";
  // RTLD_GLOBAL: libtorch_cuda's symbols must be visible to libraries loaded after it.
  const OpenedPlugin opened = open_plugin(plugin.path, nullptr, RTLD_NOW | RTLD_GLOBAL);
  plugin.loaded = opened.entry != nullptr;
  plugin.reason = opened.reason;
  return plugin;
}

}  // namespace ballast::kernels
