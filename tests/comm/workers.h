// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/world.h"

namespace ballast::test {

// All workers that run these tests, side by side, and where their tensors are; set by
// workers_main.cpp.
comm::Communicator& everyone();
at::Device device();
comm::PlaceOnMachine place_on_machine();
bool stay_on_gpus();  // tensors that are there, as these workers were started

}  // namespace ballast::test
