// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace ballast::kernels {

// CUDA lives in libballast_cuda.so, which registers our CUDA kernels and brings libtorch's with it.
struct CudaPlugin {
  std::filesystem::path path;  // the file, whether or not it is there
  bool loaded = false;
  std::string reason;  // why it is not loaded; empty if it is
};

// Loads the plugin that lies beside libballast_kernels.so, for the rest of the process. A second
// call costs nothing. Never throws: without a plugin, or CUDA's libraries, the program goes on with
// the CPU. REQUIRES: no CUDA query has been made of libtorch before, since it remembers the answer.
CudaPlugin load_cuda_plugin();

// The same with the plugin in `folder`.
CudaPlugin load_cuda_plugin(const std::filesystem::path& folder);

}  // namespace ballast::kernels
