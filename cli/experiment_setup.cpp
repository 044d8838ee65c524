// SPDX-License-Identifier: Apache-2.0
#include "cli/experiment_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ballast/batches/batch_stream.h"
#include "ballast/kernels/cuda_driver.h"
#include "ballast/record/hardware.h"
#include "ballast/studio/experiments/comparison.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/version.h"
#include "ballast/training/training_data.h"

namespace ballast::cli {
namespace {

using config::Config;

bool has_gpu(const ExperimentRequest& request) {
  const auto device = request.config.knobs.find("training.device");
  if (device != request.config.knobs.end() && device->second == "cpu") return false;
  return !kernels::query_cuda_driver().devices.empty();
}

Config gpu_defaults() {
  Config config;
  config.model = {.width = 256, .layers = 4, .heads = 4, .context = 256};
  config.data.builtin_bytes = 200'000'000;
  config.data.builtin_vocabulary = 8192;
  config.optimizer.learning_rate = 6e-3;
  config.optimizer.beta2 = 0.95;
  config.optimizer.weight_decay = 0.1;
  config.training.batch = 128;
  return config;
}

Config cpu_defaults() {
  Config config;
  config.model = {.width = 64, .layers = 4, .heads = 4, .context = 128};
  config.data.builtin_vocabulary = 1024;
  config.optimizer.learning_rate = 4e-3;
  config.optimizer.weight_decay = 0.01;
  config.training.batch = 16;
  return config;
}

// A learning rate that is given is that of all, unless a sweep around it is asked for.
int64_t rates_of(const ExperimentRequest& request) {
  constexpr int64_t kUsualRates = 3;
  if (request.rates > 0) return request.rates;
  return request.config.knobs.contains("optimizer.learning_rate") ? 1 : kUsualRates;
}

// What the experiment decides cannot be asked for.
void refuse_decided(const std::map<std::string, std::string>& knobs) {
  static const std::map<std::string, std::string> decided = {
      {"experts.layers", "--systems"},    {"experts.count", "--experts"},
      {"experts.router", "--systems"},    {"experts.placement", "--systems"},
      {"experts.size", "--systems"},      {"experts.sublayers", "--sublayers"},
      {"experts.per_token", "--systems"}, {"experts.shared", "--systems"},
      {"training.steps", "--budget"},     {"training.max_time", "--budget"},
      {"training.seed", "--seeds"},       {"training.model_parallel", "--workers"}};
  for (const auto& [key, value] : knobs) {
    if (const auto found = decided.find(key); found != decided.end())
      fail("--{}: the experiment decides it for each system; see {}", key, found->second);
  }
}

Config shared_config(const ExperimentRequest& request) {
  refuse_decided(request.config.knobs);
  Config config = has_gpu(request) ? gpu_defaults() : cpu_defaults();
  if (!request.config.file.empty()) {
    config = Config();
    config::read_config_file(config, request.config.file, request.config.scale_of_file());
  }
  for (const auto& [key, value] : request.config.overrides()) config::set_knob(config, key, value);
  if (!request.data.empty()) config.data.train = request.data;
  return config;
}

int64_t sublayers_of(const ExperimentRequest& request, const Config& config) {
  const config::ExpertsConfig& experts = config.experts;
  const bool has_own = experts.layers > 0 && experts.placement != config::Placement::kReplace;
  return request.sublayers == 0 && has_own ? experts.layers * experts.sublayers_of_layer()
                                           : request.sublayers;
}

bool is_builtin(const std::string& source) {
  return source == "builtin" || source.starts_with("builtin:");
}

// Runs find their data wherever they are started: once prepared, for all, and by whole paths.
void make_findable(std::vector<std::string>& sources, const fs::path& prepared) {
  for (std::string& source : sources) {
    source = is_builtin(source) ? prepared.string() + source.substr(std::string("builtin").size())
                                : fs::absolute(source).string();
  }
}

// Of the source that is repeated most.
double epochs_of_step(const training::TrainingData& data, const Config& config) {
  constexpr uint64_t kSteps = 1000;
  const batches::BatchStream batches(data.train, {.context = config.model.context,
                                                  .global_batch = config.training.batch,
                                                  .micro_steps = config.training.micro_steps});
  double most = 0;
  for (size_t i = 0; i < data.train.size(); ++i)
    most = std::max(most, batches.epochs(i, kSteps) / static_cast<double>(kSteps));
  return most;
}

std::string hardware() {
  nlohmann::json out = record::describe_hardware();
  out["gpus"] = nlohmann::json::array();
  for (const kernels::CudaDevice& device : kernels::query_cuda_driver().devices)
    out["gpus"].push_back(device.name);
  return out.dump();
}

// Opens the data, and fits vocabulary and sources to it.
void open_data(Config& config, ExperimentPlace& place, Preparing preparing) {
  const bool has_builtin = std::ranges::any_of(config.data.train, is_builtin) ||
                           std::ranges::any_of(config.data.valid, is_builtin);
  const fs::path prepared = fs::absolute(place.folder) / "data";
  if (has_builtin && preparing == Preparing::kNothing) {
    if (config.model.vocabulary == 0) config.model.vocabulary = config.data.builtin_vocabulary;
  } else {
    training::TrainingData data = training::open_training_data(config.data, prepared);
    if (data.valid == nullptr) {
      fail("{} has no validation split, by which systems are compared: give --data.valid",
           fmt::join(config.data.train, ", "));
    }
    training::fit_vocabulary(config.model, data);
    place.epochs_of_step = epochs_of_step(data, config);
    const int64_t rows = config.training.batch / config.training.micro_steps;
    place.split_batches =
        static_cast<int64_t>(data.valid->size()) / (rows * config.model.context) + 1;
  }
  make_findable(config.data.train, prepared);
  make_findable(config.data.valid, prepared);
}

}  // namespace

fs::path experiment_folder(const ExperimentRequest& request) {
  if (!request.out.empty()) return request.out;
  std::string name = fmt::format("{}-{}", request.name, request.budget);
  for (const std::string& source : request.data)
    name += fmt::format("-{}", fs::path(source).lexically_normal().filename().string());
  return fs::path("experiments") / name;
}

ExperimentSetup set_up(const ExperimentRequest& request, Preparing preparing) {
  ExperimentSetup setup;
  setup.place.folder = experiment_folder(request);
  Config config = shared_config(request);
  record::Experiment& experiment = setup.experiment;
  experiment.data = fmt::format("{}", fmt::join(config.data.train, ","));
  // Wrong names and sizes are told before a corpus is made, for which any vocabulary will do.
  experiments::ComparisonRequest wanted{.name = request.name,
                                        .blocks = config,
                                        .experts = request.experts,
                                        .sublayers = sublayers_of(request, config),
                                        .usual_experts = has_gpu(request) ? 128 : 8,
                                        .workers = request.workers,
                                        .only = request.systems};
  wanted.blocks.model.vocabulary = std::max<int64_t>(1024, config.model.vocabulary);
  experiments::describe_comparison(wanted);
  open_data(config, setup.place, preparing);
  wanted.blocks = config;
  const experiments::PlannedComparison comparison = experiments::describe_comparison(wanted);

  experiment.name = request.name;
  experiment.title = comparison.title;
  experiment.budget_seconds = config::parse_duration("--budget", request.budget);
  if (!(experiment.budget_seconds > 0)) fail("--budget is {}; it must be more", request.budget);
  experiment.max_epochs = request.max_epochs;
  experiment.middle_rate = config.optimizer.learning_rate;
  experiment.workers = request.workers;
  experiment.rates = rates_of(request);
  experiment.seeds = request.seeds;
  experiment.at_once = request.at_once;
  experiment.tokens_per_step = config.training.batch * config.model.context;
  experiment.program_version = version();
  experiment.hardware = hardware();
  experiment.panels = comparison.panels;
  experiment.systems = experiments::records_of(comparison);
  for (const auto& [key, value] : request.config.knobs) {
    if (experiments::is_decided_for_each_run(key) && key != "optimizer.learning_rate")
      setup.place.given.emplace(key, value);
  }
  return setup;
}

}  // namespace ballast::cli
