// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/communicator.h"

namespace ballast {

// Collective. Whether `here` holds on at least one worker: how they stop together.
bool on_any_worker(Communicator& workers, bool here, Label label);

}  // namespace ballast
