// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ballast/comm/world.h"

namespace ballast::comm {

// A world of one, for tensors on any device: what is sent arrives at once, with the same checks.
std::unique_ptr<World> open_single_world(const WorldOptions& options);
// The same without a world: a group of this worker alone, which is number `worker` among all.
std::unique_ptr<Communicator> open_single_group(const std::string& name, int worker);

}  // namespace ballast::comm
