// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ballast::pages {

std::vector<double> sorted_shares(const std::vector<double>& loads) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (!(total > 0)) return {};
  std::vector<double> shares;
  for (const double load : loads)
    shares.push_back(load * static_cast<double>(loads.size()) / total);
  std::ranges::sort(shares, std::greater());
  return shares;
}

bool is_used(const record::LayerUse& layer, size_t expert) {
  if (layer.loads.empty()) return true;
  if (expert >= layer.loads.size()) return false;
  const double total = std::accumulate(layer.loads.begin(), layer.loads.end(), 0.0);
  return layer.loads[expert] * static_cast<double>(layer.loads.size()) >= 0.1 * total;
}

double load_bits(const std::vector<double>& loads) {
  double total = 0, bits = 0;
  for (const double load : loads) total += std::fmax(0, load);
  for (const double load : loads) {
    if (load > 0) bits += load / total * std::log2(total / load);
  }
  return bits;
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

std::vector<double> balance_curve(const record::RoutingUse& routing, Choice choice) {
  std::vector<std::vector<double>> layers;
  for (const record::LayerUse& layer : routing.layers)
    layers.push_back(sorted_shares(choice == Choice::kFirst ? layer.loads : layer.second_loads));
  return mean_of_layers(layers);
}

}  // namespace ballast::pages
