// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::config {

// What the house has to know of a kind of router. The table of all kinds is router_traits.cpp:
// whoever asks here need not ask for a router's name.
struct RouterTraits {
  std::string_view name;   // of experts.router
  std::string_view title;  // in a sentence about a model: "BASE"
  std::string_view layer;  // one of its layers: "BASE layer"
  int64_t experts_of_token = 1;
  // In training every expert gets equally many tokens. Such a router has a solver and prices, may
  // shuffle, and can also be tested with priced and balanced routing. Others are gates: they drop
  // tokens beyond a capacity, and are tested greedily.
  bool balanced = false;
  double capacity = 1;  // in training, as a factor of the fair share, by its paper
};

std::vector<std::string> router_names();
// REQUIRES: there is such a router.
const RouterTraits& traits_of_router(std::string_view name);

}  // namespace ballast::config
