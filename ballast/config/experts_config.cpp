// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/config/config.h"

namespace ballast::config {

double ExpertsConfig::training_capacity() const {
  if (capacity >= 0) return capacity;
  return traits().capacity;
}

int64_t ExpertsConfig::sublayers_of_layer() const {
  if (sublayers > 0 || layers == 0) return sublayers;
  if (placement == Placement::kReplace) return 1;
  const int64_t all = size == ExpertSize::kSmall ? 4 : size == ExpertSize::kLarge ? 27 : 10;
  return all / layers;
}

int64_t ExpertsConfig::width_of_shared(const ModelConfig& model) const {
  constexpr double kUnit = 8;
  if (shared == 0) return 0;
  const double width = shared * static_cast<double>(width_of_expert(model));
  return static_cast<int64_t>(std::max(1.0, std::round(width / kUnit)) * kUnit);
}

TestRouting ExpertsConfig::tested_routing() const {
  if (test_routing != TestRouting::kAuto) return test_routing;
  return traits().balanced ? TestRouting::kPriced : TestRouting::kGreedy;
}

void take_papers_frame(ExpertsConfig& experts) {
  const bool is_base = experts.traits().balanced;
  experts.features = is_base ? Features::kRaw : Features::kNormed;
  experts.gate = is_base ? Gate::kSigmoid : Gate::kSoftmax;
  experts.scores = Scores::kDot;
  experts.router_rate = 1;
  experts.embedding_gain = 0.1;
  experts.look_ahead = false;
}

std::string frame_in_words(const ExpertsConfig& experts) {
  std::string words = fmt::format("{} features, {} gate, {} scores", name_of(experts.features),
                                  name_of(experts.gate), name_of(experts.scores));
  if (experts.router_rate != 1)
    words += fmt::format(", {:g} of the learning rate", experts.router_rate);
  if (experts.look_ahead) words += ", look-ahead";
  return words;
}

std::vector<int64_t> ExpertsConfig::places(int64_t blocks) const {
  const int64_t parts = placement == Placement::kReplace ? layers : layers + 1;
  std::vector<int64_t> places;
  for (int64_t i = 1; i <= layers; ++i)
    places.push_back(placement == Placement::kTop ? blocks : i * blocks / parts);
  return places;
}

}  // namespace ballast::config
