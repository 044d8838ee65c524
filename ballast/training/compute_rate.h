// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/model/device.h"

namespace ballast::training {

// Floating-point operations a second of a large matrix product here, in the working precision: what
// a step's rate is compared with (MFU). Takes a few tens of milliseconds.
double measure_matrix_rate(const model::ComputePlace& place);

// Memory this process holds now, in bytes: resident on a CPU, allocated on a GPU.
uint64_t memory_in_use(const model::ComputePlace& place);

}  // namespace ballast::training
