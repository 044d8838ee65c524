// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing.h"

#include <array>
#include <utility>

#include "ballast/system/error.h"

namespace ballast::experts {
namespace {

constexpr std::array kNames = {std::pair(RoutingMode::kBalanced, std::string_view("balanced")),
                               std::pair(RoutingMode::kGreedy, std::string_view("greedy")),
                               std::pair(RoutingMode::kPriced, std::string_view("priced"))};

}  // namespace

RoutingMode parse_routing_mode(std::string_view name) {
  for (const auto& [mode, known] : kNames) {
    if (known == name) return mode;
  }
  fail("there is no routing \"{}\"; want balanced, greedy or priced", name);
}

double RoutingStats::sum(RoutingSum which) const {
  return sums.defined() ? sums[which].item<double>() : 0;
}

at::Tensor RoutingStats::price_sum() const {
  return sums.narrow(0, kRoutingSums, sums.size(0) - kRoutingSums);
}

std::string_view routing_name(RoutingMode mode) { return kNames[static_cast<size_t>(mode)].second; }

}  // namespace ballast::experts
