// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ballast/comm/world.h"

namespace ballast::test {

// A world of one, for models and trainers that need no other workers.
inline comm::Communicator& lone_worker() {
  static const std::unique_ptr<comm::World> world =
      comm::open_world({.kind = comm::WorldKind::kSingle});
  return world->everyone();
}

}  // namespace ballast::test
