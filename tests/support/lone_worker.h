// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ballast/comm/world.h"

namespace ballast::test {

// A world of one, for models and trainers that need no other workers.
inline Communicator& lone_worker() {
  static const std::unique_ptr<World> world = open_world({.kind = WorldKind::kSingle});
  return world->everyone();
}

}  // namespace ballast::test
