// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "ballast/record/validation_file.h"
#include "ballast/studio/serving/inspector_json.h"
#include "ballast/studio/serving/validation_samples.h"

namespace ballast::serving {

// A run's validation.json; nothing: it has none, or none that can be read.
std::optional<record::LastValidation> validation_of(const std::filesystem::path& run);
// What it says of a layer with the usual routing; null: nothing.
const record::LayerUse* layer_in(const std::optional<record::LastValidation>& validation,
                                 int64_t layer);

// [{step, price}] of an expert of a layer, over a run's checkpoints: at most 64 of them, spread
// evenly. Empty: the run's router has no prices.
Json price_history(const std::filesystem::path& run, int64_t layer, int64_t expert);

struct ExpertOrder {
  size_t layer = 0;  // its place among the model's layers of experts
  int64_t expert = 0;
};
// Its price, the nearest others, what it got in the last validation or the sample, and examples.
Json expert_json(const loading::LoadedModel& loaded, const ExpertOrder& order,
                 const std::optional<record::LastValidation>& validation,
                 const ValidationSamples::Entry& sampled);

}  // namespace ballast::serving
