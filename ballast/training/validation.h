// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "ballast/experts/routing.h"
#include "ballast/inference/evaluate.h"
#include "ballast/inference/validation_record.h"

namespace ballast::training {

// What a validation found. The last validation of a BASE model also has the other way to route, and
// balanced routing within a worker's tokens of a batch.
struct Validation {
  experts::RoutingMode routing = experts::RoutingMode::kGreedy,
                       other_routing = experts::RoutingMode::kPriced;
  inference::Evaluation result;
  std::optional<inference::Evaluation> other, balanced;

  // What there is, in the order greedy, priced, balanced. Refers to this.
  std::vector<inference::RoutedEvaluation> by_routing() const;
};

}  // namespace ballast::training
