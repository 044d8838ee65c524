// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/validation.h"

namespace ballast::training {

std::vector<inference::RoutedEvaluation> Validation::by_routing() const {
  std::vector<inference::RoutedEvaluation> list;
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    if (routing == mode) list.push_back({mode, result});
    if (other && other_routing == mode) list.push_back({mode, *other});
  }
  if (balanced) list.push_back({experts::RoutingMode::kBalanced, *balanced});
  return list;
}

}  // namespace ballast::training
