// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "ballast/comm/arrivals.h"

namespace ballast {

// Who keeps a call from ending, one line for each kind of trouble, from what the others answered.
// `call` is what this worker's call is called; a worker that made another in its place is named.
std::string missing_text(std::span<const WorkerState> others, const std::string& call);

}  // namespace ballast
