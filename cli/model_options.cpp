// SPDX-License-Identifier: Apache-2.0
#include "cli/model_options.h"

#include <CLI/CLI.hpp>

#include "ballast/system/error.h"
#include "cli/command.h"
#include "cli/place_options.h"

namespace ballast::cli {

void add_average_option(CLI::App& command, bool& average) {
  command.add_flag("--average", average,
                   "take the average of weights that the run kept (optimizer.average)");
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.path, "run directory, checkpoint, or exported model")
      ->required();
  add_device_option(command, options.device);
  add_choice(command, "--precision", options.precision, "auto: fp32 on cpu, bf16 on cuda");
  add_path(command, "--tokenizer", options.tokenizer, "PATH",
           "use this tokenizer instead of the run's own");
  add_average_option(command, options.average);
  add_number(command, "--model-parallel", options.model_parallel,
             "workers that hold one model together: its heads, feed-forwards and vocabulary "
             "are divided among them",
             1, "M")
      ->capture_default_str()
      ->group("Workers");
}

std::unique_ptr<loading::LoadedModel> load(const ModelOptions& options, comm::World& world) {
  return loading::load_model(
      {.path = options.path,
       .device = options.device,
       .precision = options.precision,
       .tokenizer = options.tokenizer,
       .model_parallel = options.model_parallel,
       .weights = options.average ? loading::Weights::kAverage : loading::Weights::kLast},
      world);
}

experts::RoutingMode choose_routing(const loading::LoadedModel& loaded, const std::string& wish) {
  if (wish.empty())
    return experts::parse_routing_mode(config::name_of(loaded.config.experts.tested_routing()));
  if (loaded.model->expert_layers().empty()) {
    fail("--routing {}: {} is a dense model, without experts to route to; leave the option out",
         wish, loaded.path.string());
  }
  const experts::RoutingMode mode = experts::parse_routing_mode(wish);
  const config::ExpertsConfig& experts = loaded.config.experts;
  if (mode != experts::RoutingMode::kGreedy && !experts.traits().balanced) {
    fail("--routing {}: {} has {} layers, which route greedily; {} is for BASE layers", wish,
         loaded.path.string(), experts.router, wish);
  }
  return mode;
}

const tokenizer::Tokenizer& require_tokenizer(const loading::LoadedModel& loaded) {
  if (loaded.tokenizer == nullptr) {
    fail("{} was trained on token files that name no tokenizer: give one with --tokenizer",
         loaded.path.string());
  }
  return *loaded.tokenizer;
}

}  // namespace ballast::cli
