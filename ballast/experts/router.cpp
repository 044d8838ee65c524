// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router.h"

#include <utility>

namespace ballast {

RoutingStats Router::take_stats() {
  stats_.assign_seconds = timer_.take_seconds();
  return std::exchange(stats_, RoutingStats());
}

}  // namespace ballast
