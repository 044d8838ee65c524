// SPDX-License-Identifier: Apache-2.0
#include "ballast/pages/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ballast {

std::vector<double> sorted_shares(const std::vector<double>& loads) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (!(total > 0)) return {};
  std::vector<double> shares;
  for (const double load : loads)
    shares.push_back(load * static_cast<double>(loads.size()) / total);
  std::ranges::sort(shares, std::greater());
  return shares;
}

std::vector<double> mean_of_layers(const std::vector<std::vector<double>>& layers) {
  std::vector<double> mean;
  double count = 0;
  for (const std::vector<double>& layer : layers) {
    if (layer.empty()) continue;
    if (mean.empty()) mean.assign(layer.size(), 0);
    if (layer.size() != mean.size()) continue;
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += layer[i];
    ++count;
  }
  for (double& value : mean) value /= count;
  return mean;
}

std::vector<double> balance_curve(const RoutingUse& routing, Choice choice) {
  std::vector<std::vector<double>> layers;
  for (const LayerUse& layer : routing.layers)
    layers.push_back(sorted_shares(choice == Choice::kFirst ? layer.loads : layer.second_loads));
  return mean_of_layers(layers);
}

}  // namespace ballast
