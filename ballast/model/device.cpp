// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/system/error.h"
#include "ballast/system/parallel.h"

namespace ballast::model {
namespace {

// Activations come and go every step. Kept in the heap, their pages stay; given back to the system
// each time, half of a small model's step goes into page faults.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

bool find_gpu(config::DeviceChoice wish) {
  if (wish == config::DeviceChoice::kCpu) return false;
  const kernels::CudaPlugin plugin = kernels::load_cuda_plugin();
  const bool usable = plugin.loaded && at::hasCUDA() && at::globalContext().hasCUDA();
  if (wish == config::DeviceChoice::kCuda && !usable) {
    fail("training.device is cuda, but no GPU can be used: {} (`ballast doctor` tells more)",
         plugin.loaded ? "none is visible to the driver" : plugin.reason);
  }
  return usable;
}

}  // namespace

ComputePlace choose_place(const PlaceRequest& request) {
  // cuBLAS reads this when it starts: a workspace of its own for each stream, which determinism
  // needs.
  if (request.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
  const bool gpu = find_gpu(request.device);
  if (request.deterministic)
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const int share = std::max(1, static_cast<int>(num_cores()) / request.on_machine.workers);
  const int threads = request.threads > 0 ? static_cast<int>(request.threads) : share;
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
  if (!gpu) keep_freed_memory();
  ComputePlace place;
  if (gpu) {
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    place.device = comm::gpu_of(request.on_machine, gpus.deviceCount());
    gpus.setDevice(place.device);
    // Everything goes by one stream, which is not the default one: that cannot be recorded.
    if (gpus.getStream(place.device) == gpus.getDefaultStream(place.device))
      gpus.exchangeStream(gpus.getStreamFromGlobalPool(place.device));
  }
  const config::Precision precision = request.precision;
  if (precision == config::Precision::kFp64) place.working = place.master = at::kDouble;
  if (precision == config::Precision::kBf16 || (precision == config::Precision::kAuto && gpu))
    place.working = at::kBFloat16;
  if (place.working == at::kBFloat16 && !gpu) {
    fail("training.precision: bf16 needs a GPU; the CPU computes in fp32 (or fp64)");
  }
  return place;
}

}  // namespace ballast::model
