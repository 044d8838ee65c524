// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/router_traits.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace ballast::config {
namespace {

constexpr std::array kRouters = {
    RouterTraits{.name = "base", .title = "BASE", .layer = "BASE layer", .balanced = true},
    RouterTraits{.name = "sparsely_gated",
                 .title = "Sparsely Gated MoE",
                 .layer = "MoE layer",
                 .experts_of_token = 2,
                 .capacity = 2},
    RouterTraits{.name = "switch", .title = "Switch", .layer = "Switch layer"},
};

}  // namespace

std::vector<std::string> router_names() {
  std::vector<std::string> names;
  for (const RouterTraits& traits : kRouters) names.emplace_back(traits.name);
  return names;
}

const RouterTraits& traits_of_router(std::string_view name) {
  const auto* const found = std::ranges::find(kRouters, name, &RouterTraits::name);
  if (found == kRouters.end()) throw std::invalid_argument("no router " + std::string(name));
  return *found;
}

}  // namespace ballast::config
