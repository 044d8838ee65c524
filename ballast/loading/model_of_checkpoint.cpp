// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/model_of_checkpoint.h"

#include "ballast/comm/single.h"
#include "ballast/loading/weights.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"

namespace ballast::loading {
namespace {

// Even the list of a model's tensors takes memory: one that is larger by far is not looked at. What
// is nearer is told tensor by tensor.
void check_size(const checkpoint::Checkpoint& checkpoint, const config::Config& config) {
  constexpr double kByFar = 64;
  double held = 0;
  for (const checkpoint::TensorEntry& entry : checkpoint.manifest().tensors) {
    double numbers = 1;
    for (const int64_t extent : entry.shape) numbers *= static_cast<double>(extent);
    held += numbers;
  }
  const auto wanted = static_cast<double>(model::model_size(config).total);
  if (wanted <= kByFar * held) return;
  fail("{}: its config is of a model with {} parameters, but it holds {}: its config was changed",
       checkpoint.path().string(), format_count(wanted), format_count(held));
}

}  // namespace

void check_model_of(const checkpoint::Checkpoint& checkpoint, const config::Config& config) {
  config::Config whole = config;
  whole.training.model_parallel = 1;
  config::check_config(whole);
  check_size(checkpoint, whole);
  const auto alone = comm::open_single_group("model", 0);
  parameters::ParameterTable table;
  const model::LanguageModel model(whole, table, *alone);
  check_segments(checkpoint, table, all_weights());
}

}  // namespace ballast::loading
