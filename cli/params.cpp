// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/config/system_words.h"
#include "ballast/model/model_size.h"
#include "ballast/model/update_counts.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/knob_options.h"
#include "cli/sized_config.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Counted from the configuration alone: nothing is allocated, no data opened.

Examples
  ballast params configs/paper_base_44b.toml --workers 128
  ballast params configs/paper_switch_52b.toml --scale laptop
  ballast params configs/paper_dense_6b.toml --workers 128       (model parallel, as its file says)
  ballast params configs                                         (all of them, a row for each)
  ballast params configs/first_run.toml --experts.count 64
  ballast params --model.vocabulary 50304 --model.width 1024 --model.layers 24 --json

JSON keys (--json): system (in words), shared (parameters of all but the experts), per_expert (of
  one expert, in all layers of experts), total, active (those a token meets), trained (all but
  training.freeze), flops_per_token (of a training step in which no token is dropped), vocabulary,
  layers (blocks), experts (of each layer of experts; 0: a dense model), experts_of_token, router
  and placement (null: a dense model),
  base_layers (for each layer of experts, whatever its router: the block before it, or with
  placement replace the block whose feed-forward it stands for), sublayers (of each expert of a
  layer), workers, model_parallel (workers that share a replica of the model), replicas,
  experts_per_worker, parameters_per_worker (the most one holds), memory_per_worker {PRECISION:
  {weights, gradients, adam (Muon's momentum and the average, too), total}}, in bytes, without
  activations; one precision, or the two that training.precision auto may choose from. Of a folder:
  presets, a list of {name, system, total, shared, per_expert, active, flops_per_token}.
)";

struct Options {
  ConfigOptions config;
  int64_t workers = 0;  // 0: those of one replica
  bool json = false;
};

struct ParameterType {
  const char* name;
  model::ParameterBytes bytes;
};

std::vector<ParameterType> possible_precisions(const config::TrainingConfig& training) {
  const ParameterType fp64{"fp64", model::bytes_of_parameter(8, 8)},
      fp32{"fp32", model::bytes_of_parameter(4, 4)}, bf16{"bf16", model::bytes_of_parameter(2, 4)};
  if (training.precision == config::Precision::kFp64) return {fp64};
  if (training.precision == config::Precision::kFp32) return {fp32};
  if (training.precision == config::Precision::kBf16 ||
      training.device == config::DeviceChoice::kCuda)
    return {bf16};
  if (training.device == config::DeviceChoice::kCpu) return {fp32};
  return {fp32, bf16};
}

// A model with what one of its workers holds.
struct Counted {
  config::Config config;
  model::ModelSize size;
  int64_t workers = 1;

  bool is_sparse() const { return config.experts.layers > 0; }
  int64_t experts() const { return is_sparse() ? config.experts.count : 0; }
  int64_t experts_here() const { return experts() / workers; }
  int64_t experts_of_token() const { return is_sparse() ? config.experts.experts_of_token() : 0; }
  int64_t shards() const { return config.training.model_parallel; }
  int64_t parameters_here() const { return model::parameters_of_worker(config, workers); }
  int64_t sublayers() const { return is_sparse() ? config.experts.sublayers_of_layer() : 0; }
  bool is_frozen_in_part() const { return !config.training.freeze.empty(); }
  int64_t trained() const {
    return is_frozen_in_part() ? model::count_updates(config).trained() : size.total;
  }
};

// Bytes of one worker, beside what its activations need.
struct WorkerBytes {
  double weights = 0, gradients = 0, moments = 0;

  double total() const { return weights + gradients + moments; }
};

WorkerBytes bytes_here(const Counted& model, const model::ParameterBytes& each) {
  const auto held = static_cast<double>(model.parameters_here()),
             of_experts = static_cast<double>(model.experts_here() * model.size.per_expert);
  const model::KeptNumbers kept =
      model::kept_numbers(model.config, model.workers, held - of_experts, of_experts);
  return {.weights = held * static_cast<double>(each.weights - each.master) +
                     kept.masters * static_cast<double>(each.master),
          .gradients = kept.gradients * static_cast<double>(each.gradients),
          .moments = kept.moments * static_cast<double>(each.moments) / 2};
}

void print_json(const Counted& model) {
  const int64_t held = model.parameters_here();
  Json memory = Json::object();
  for (const auto& [name, each] : possible_precisions(model.config.training)) {
    const WorkerBytes bytes = bytes_here(model, each);
    memory[name] = {{"weights", std::llround(bytes.weights)},
                    {"gradients", std::llround(bytes.gradients)},
                    {"adam", std::llround(bytes.moments)},
                    {"total", std::llround(bytes.total())}};
  }
  const config::ExpertsConfig& experts = model.config.experts;
  const auto of_experts = [&](const std::string& text) {
    return model.is_sparse() ? Json(text) : Json();
  };
  const Json out = {{"system", config::system_in_words(model.config)},
                    {"shared", model.size.shared},
                    {"per_expert", model.size.per_expert},
                    {"total", model.size.total},
                    {"active", model.size.active},
                    {"trained", model.trained()},
                    {"flops_per_token", model.size.flops_per_token},
                    {"vocabulary", model.config.model.vocabulary},
                    {"layers", model.config.model.layers},
                    {"experts", model.experts()},
                    {"experts_of_token", model.experts_of_token()},
                    {"router", of_experts(experts.router)},
                    {"placement", of_experts(config::name_of(experts.placement))},
                    {"base_layers", experts.places(model.config.model.layers)},
                    {"sublayers", model.sublayers()},
                    {"workers", model.workers},
                    {"model_parallel", model.shards()},
                    {"replicas", model.workers / model.shards()},
                    {"experts_per_worker", model.experts_here()},
                    {"parameters_per_worker", held},
                    {"memory_per_worker", memory}};
  fmt::print("{}\n", out.dump(2));
}

std::string of_count(int64_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

void print_model(const Counted& model) {
  const config::ModelConfig& m = model.config.model;
  const config::ExpertsConfig& experts = model.config.experts;
  const std::string layer = config::layer_in_words(experts);
  const auto row = [](const char* name, double value, const std::string& what) {
    fmt::print("  {:<20}{:>8}   {}\n", name, format_count(value), what);
  };
  const auto count = [&](const char* name, int64_t value, const std::string& what) {
    row(name, static_cast<double>(value), what);
  };
  fmt::print("{}\n", config::system_in_words(model.config));
  count("shared", model.size.shared,
        fmt::format("{}, width {}, feed-forward {}, vocabulary {}, context {}",
                    of_count(m.layers, "block"), m.width, m.feed_forward_width(), m.vocabulary,
                    m.context));
  if (model.is_sparse()) {
    count("per expert", model.size.per_expert,
          fmt::format("{} {} {}", of_count(model.sublayers(), "sublayer"),
                      experts.layers > 1 ? "in each of" : "in",
                      of_count(experts.layers, layer.c_str())));
    count("total", model.size.total,
          fmt::format("with {} of each {}, {}", of_count(model.experts(), "expert"), layer,
                      config::places_in_words(model.config)));
    count("active", model.size.active,
          fmt::format("those a token meets: shared, and {}",
                      model.experts_of_token() == 1 ? "one expert"
                      : model.experts_of_token() == 2
                          ? "two experts"
                          : of_count(model.experts_of_token(), "expert")));
  }
  if (model.is_frozen_in_part()) {
    count("trained", model.trained(),
          fmt::format("frozen: {}", fmt::join(model.config.training.freeze, ", ")));
  }
  row("FLOPs a token", model.size.flops_per_token,
      experts.traits().balanced || !model.is_sparse() ? "forward and backward"
                                                      : "forward and backward, if none is dropped");
}

bool has_adam_alone(const config::OptimizerConfig& optimizer) {
  return optimizer.algorithm == config::Algorithm::kAdam && optimizer.average == 0;
}

void print_worker(const Counted& model) {
  std::string who =
      model.workers == 1 ? "One worker" : fmt::format("Each of {} workers", model.workers);
  if (model.shards() > 1) who += fmt::format(", {} to a replica,", model.shards());
  fmt::print("\n{} holds {} parameters", who,
             format_count(static_cast<double>(model.parameters_here())));
  if (model.is_sparse())
    fmt::print(", {} of each {} among them", of_count(model.experts_here(), "expert"),
               config::layer_in_words(model.config.experts));
  fmt::print(". To train them:\n  {:<6}{:>10}{:>11}{:>10}{:>10}\n", "", "weights", "gradients",
             has_adam_alone(model.config.optimizer) ? "Adam" : "optimizer", "total");
  for (const auto& [name, each] : possible_precisions(model.config.training)) {
    const WorkerBytes bytes = bytes_here(model, each);
    fmt::print("  {:<6}{:>10}{:>11}{:>10}{:>10}\n", name, format_bytes(bytes.weights),
               format_bytes(bytes.gradients), format_bytes(bytes.moments),
               format_bytes(bytes.total()));
  }
  fmt::print("Activations come on top.\n");
}

int count_model(const Options& options) {
  config::Config config = read_sized_config(options.config, options.config.file);
  const int64_t workers = options.workers > 0 ? options.workers : config.training.model_parallel;
  if (config.experts.groups == 0) config.experts.groups = workers;
  config::check_workers(config, workers);
  if (!config.training.freeze.empty()) model::count_updates(config);  // refuses names of nothing
  const Counted model{config, model::model_size(config), workers};
  if (options.json) {
    print_json(model);
  } else {
    print_model(model);
    print_worker(model);
  }
  return 0;
}

bool has_scale(const std::string& file, const std::string& scale) {
  config::Config config;
  config::read_config_file(config,
                           file);  // throws for whatever else is wrong with it, at any scale
  try {
    config::read_config_file(config, file, scale);
  } catch (const UserError&) {
    return false;
  }
  return true;
}

struct Preset {
  std::string name;
  config::Config config;
};

// Those of a folder that have the scale, by name. What they lack is said on stderr.
std::vector<Preset> read_presets(const Options& options) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.config.file))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::ranges::sort(files);
  const std::string scale = options.config.scale_of_file();
  std::vector<Preset> presets;
  for (const std::filesystem::path& file : files) {
    if (!has_scale(file.string(), scale)) {
      log_info("{} has no scale {}", file.string(), scale);
      continue;
    }
    try {
      presets.push_back({file.stem().string(), read_sized_config(options.config, file.string())});
    } catch (const UserError& error) {
      fail("{}: {}", file.string(), error.what());
    }
  }
  if (presets.empty())
    fail("{}: there is no config file with scale {}", options.config.file, scale);
  return presets;
}

int count_presets(const Options& options) {
  if (options.workers > 0) fail("--workers: name one config file to see what a worker holds");
  const std::vector<Preset> presets = read_presets(options);
  Json list = Json::array();
  if (!options.json)
    fmt::print("{:<20}{:<48}{:>8}{:>8}{:>12}{:>8}{:>13}\n", "", "", "total", "shared", "per expert",
               "active", "FLOPs/token");
  for (const auto& [name, config] : presets) {
    const model::ModelSize size = model::model_size(config);
    const auto text = [](auto count) { return format_count(static_cast<double>(count)); };
    list.push_back({{"name", name},
                    {"system", config::system_in_words(config)},
                    {"total", size.total},
                    {"shared", size.shared},
                    {"per_expert", size.per_expert},
                    {"active", size.active},
                    {"flops_per_token", size.flops_per_token}});
    if (!options.json)
      fmt::print("{:<20}{:<48}{:>8}{:>8}{:>12}{:>8}{:>13}\n", name, config::system_in_words(config),
                 text(size.total), text(size.shared),
                 config.experts.layers > 0 ? text(size.per_expert) : "-", text(size.active),
                 text(size.flops_per_token));
  }
  if (options.json) fmt::print("{}\n", Json{{"presets", list}}.dump(2));
  return 0;
}

int run(const Options& options) {
  return std::filesystem::is_directory(options.config.file) ? count_presets(options)
                                                            : count_model(options);
}

}  // namespace

void add_params(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "params", "How large a model is: parameters, operations, memory", kFooter);
  add_config_options(*command, options->config,
                     "TOML file with any of the knobs below, or a folder of such files");
  add_number(*command, "--workers", options->workers,
             "workers its experts are divided among [training.model_parallel]");
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
