// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "ballast/comm/arrivals.h"

namespace ballast::comm {

// Who keeps a call from ending, one line for each kind of trouble, from what the others answered.
// `call` is what this worker's call is called; a worker that made another in its place is named.
// `outside`: workers that are not of the call's group, for whom a member of it may be waiting.
std::string missing_text(std::span<const WorkerState> members, const std::string& call,
                         std::span<const WorkerState> outside = {});

}  // namespace ballast::comm
