// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "ballast/experts/routing.h"
#include "ballast/inference/evaluate.h"
#include "ballast/inference/validation_record.h"

namespace ballast {

// What a validation found. The last validation of a BASE model also has the other way to route, and
// balanced routing within a worker's tokens of a batch.
struct Validation {
  RoutingMode routing = RoutingMode::kGreedy, other_routing = RoutingMode::kPriced;
  Evaluation result;
  std::optional<Evaluation> other, balanced;

  // What there is, in the order greedy, priced, balanced. Refers to this.
  std::vector<RoutedEvaluation> by_routing() const;
};

}  // namespace ballast
