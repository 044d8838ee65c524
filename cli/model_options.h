// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ballast/loading/loaded_model.h"

namespace CLI {
class App;
}

namespace ballast::cli {

// The options every command has that uses a trained model, with any number of workers.
struct ModelOptions {
  std::string path, tokenizer;
  config::DeviceChoice device = config::DeviceChoice::kAuto;
  config::Precision precision = config::Precision::kAuto;
  int64_t model_parallel = 1;
  bool average = false;
};
// --average, also of commands that have a model in another way.
void add_average_option(CLI::App& command, bool& average);
void add_model_options(CLI::App& command, ModelOptions& options);
std::unique_ptr<loading::LoadedModel> load(const ModelOptions& options, comm::World& world);
// How the model's BASE layers route: as wished ("greedy"), or, if that is empty, by
// experts.test_routing of its config. Throws UserError where the model cannot route that way.
experts::RoutingMode choose_routing(const loading::LoadedModel& loaded, const std::string& wish);
// Throws UserError where the model came without a tokenizer.
const tokenizer::Tokenizer& require_tokenizer(const loading::LoadedModel& loaded);

}  // namespace ballast::cli
