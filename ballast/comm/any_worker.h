// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// Collective. Whether `here` is true on at least one worker. So workers stop together.
bool on_any_worker(Communicator& workers, bool here, Label label);

}  // namespace ballast::comm
