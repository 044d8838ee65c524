// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "ballast/experts/routing.h"
#include "ballast/inference/evaluate.h"

namespace ballast {

// What a validation found; for BASE models at the end also with the other way to route.
struct Validation {
  RoutingMode routing = RoutingMode::kGreedy, other_routing = RoutingMode::kPriced;
  Evaluation result;
  std::optional<Evaluation> other;
};

}  // namespace ballast
