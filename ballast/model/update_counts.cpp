// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/update_counts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ballast/comm/single.h"
#include "ballast/config/nearest.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/name_pattern.h"
#include "ballast/system/error.h"

namespace ballast::model {
namespace {

void check_patterns(const parameters::ParameterTable& table,
                    const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const parameters::Segment& segment : table.segments()) names.push_back(segment.name);
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const std::string& name) { return parameters::fits(name, pattern); };
    if (std::ranges::none_of(names, fits)) {
      fail(
          "training.freeze: no parameter is called \"{}\"{} (* stands for anything: block.*; "
          "they are called as {})",
          pattern, config::nearest_is(pattern, names, "\"{}\""), names.front());
    }
  }
}

// The iteration of kernels/newton_schulz.h with a matrix of sides n <= l: products of [n, l] with
// itself, of [n, n] with itself and with [n, l].
void add_orthogonalising(const parameters::Segment& segment, UpdateCounts& counts) {
  constexpr double kSteps = 5;
  const std::vector<int64_t> heights =
      segment.matrices.empty() ? std::vector<int64_t>{segment.shape[0]} : segment.matrices;
  for (const int64_t height : heights) {
    const auto n = static_cast<double>(std::min(height, segment.shape[1]));
    const auto l = static_cast<double>(std::max(height, segment.shape[1]));
    counts.muon_products += kSteps * (4 * n * n * l + 2 * n * n * n);
    counts.muon_numbers += kSteps * (5 * n * l + 6 * n * n);
  }
}

}  // namespace

ModelUpdates count_updates(const config::Config& config) {
  config::Config whole = config;
  whole.training.model_parallel = 1;
  whole.model.vocabulary = std::max<int64_t>(1, whole.model.vocabulary);
  const auto alone = comm::open_single_group("model", 0);
  parameters::ParameterTable table;
  const LanguageModel model(whole, table, *alone);
  check_patterns(table, config.training.freeze);
  const std::string divided = table.freeze(config.training.freeze);
  if (!divided.empty()) {
    fail(
        "training.freeze: the experts of a layer are frozen together, and {} would not be as the "
        "others; name all of them, as layer.*.expert.*",
        divided);
  }
  const bool muon = config.optimizer.algorithm == config::Algorithm::kMuon;
  ModelUpdates counts;
  for (const parameters::Segment& segment : table.segments()) {
    UpdateCounts& here =
        segment.owner == parameters::Owner::kExpert ? counts.experts : counts.shared;
    const parameters::Update update = parameters::update_of(segment, muon);
    (update == parameters::Update::kAdam   ? here.adam
     : update == parameters::Update::kMuon ? here.muon
                                           : here.frozen) += segment.size;
    if (update == parameters::Update::kMuon) add_orthogonalising(segment, here);
  }
  if (counts.trained() == 0)
    fail("training.freeze: it names all parameters, and none is left to train");
  return counts;
}

namespace {

// Of `parameters` that are updated as these are, in the same parts; what Adam has for them is
// divided among `sharers`.
KeptNumbers kept_of(const UpdateCounts& counts, double parameters, double averages,
                    double sharers) {
  if (counts.all() == 0) return {};
  const auto part = [&](int64_t count) {
    return parameters * static_cast<double>(count) / static_cast<double>(counts.all());
  };
  const double adam = part(counts.adam) / sharers, muon = part(counts.muon);
  return {.gradients = part(counts.trained()),
          .moments = 2 * adam + muon + averages * (adam + muon),
          .masters = adam + muon + part(counts.frozen)};
}

}  // namespace

KeptNumbers kept_numbers(const config::Config& config, int64_t workers, double shared,
                         double experts) {
  const config::OptimizerConfig& optimizer = config.optimizer;
  const config::TrainingConfig& training = config.training;
  const double averages = optimizer.average > 0 ? 1 : 0;
  const double sharers =
      training.shard_optimizer ? static_cast<double>(workers / training.model_parallel) : 1;
  if (optimizer.algorithm == config::Algorithm::kAdam && training.freeze.empty()) {
    const double kept = shared / sharers + experts;
    return {.gradients = shared + experts, .moments = (2 + averages) * kept, .masters = kept};
  }
  const ModelUpdates updates = count_updates(config);
  const KeptNumbers of_shared = kept_of(updates.shared, shared, averages, sharers),
                    of_experts = kept_of(updates.experts, experts, averages, 1);
  return {.gradients = of_shared.gradients + of_experts.gradients,
          .moments = of_shared.moments + of_experts.moments,
          .masters = of_shared.masters + of_experts.masters};
}

}  // namespace ballast::model
