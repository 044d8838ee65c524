// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

namespace ballast {

struct ComputePlace {
  at::Device device = at::kCPU;
  at::ScalarType working = at::kFloat;  // the dtype the model computes in
  at::ScalarType master = at::kFloat;   // the dtype weights are kept in
};

// From the knobs: device auto, cpu or cuda; precision auto, fp32, bf16 or fp64; threads, 0 for all
// cores. Loads the CUDA plugin where a GPU is asked for or might be there. Throws UserError that
// says why a GPU cannot be had. Sets libtorch's thread count.
ComputePlace choose_place(const std::string& device, const std::string& precision, int64_t threads);

}  // namespace ballast
