// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ballast/comm/world.h"

namespace ballast {

// A world of one, for tensors on any device: what is sent arrives at once, with the same checks.
std::unique_ptr<World> open_single_world(const WorldOptions& options);

}  // namespace ballast
