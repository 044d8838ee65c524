// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/validation.h"

namespace ballast {

std::vector<RoutedEvaluation> Validation::by_routing() const {
  std::vector<RoutedEvaluation> list;
  for (const RoutingMode mode : {RoutingMode::kGreedy, RoutingMode::kPriced}) {
    if (routing == mode) list.push_back({mode, result});
    if (other && other_routing == mode) list.push_back({mode, *other});
  }
  if (balanced) list.push_back({RoutingMode::kBalanced, *balanced});
  return list;
}

}  // namespace ballast
