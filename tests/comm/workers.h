// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/communicator.h"

namespace ballast::test {

// All workers that run these tests, side by side, and where their tensors are; set by
// workers_main.cpp.
Communicator& everyone();
at::Device device();

}  // namespace ballast::test
