// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "ballast/comm/world.h"
#include "ballast/config/choices.h"

namespace ballast::model {

struct ComputePlace {
  at::Device device = at::kCPU;
  at::ScalarType working = at::kFloat;  // the dtype the model computes in
  at::ScalarType master = at::kFloat;   // the dtype weights are kept in
};

struct PlaceRequest {
  config::DeviceChoice device = config::DeviceChoice::kAuto;
  config::Precision precision = config::Precision::kAuto;
  int64_t threads = 0;                   // 0: this worker's share of the cores
  bool deterministic = false;            // on a GPU: only kernels that give the same bits each time
  comm::PlaceOnMachine on_machine = {};  // cores and GPUs are shared out among the workers there
};

// Decides where and in what to compute. Loads the CUDA plugin where a GPU is asked for or might be
// there, and sets libtorch's threads. Throws UserError that says why a GPU cannot be had.
ComputePlace choose_place(const PlaceRequest& request);

}  // namespace ballast::model
