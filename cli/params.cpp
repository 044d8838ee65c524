// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "ballast/training/train.h"
#include "cli/at_least.h"
#include "cli/commands.h"
#include "cli/knob_options.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Counted from the configuration alone: nothing is allocated, no data opened.

Examples
  ballast params configs/paper_base_44b.toml --workers 128
  ballast params configs/first_run.toml --experts.count 64
  ballast params --model.vocabulary 50304 --model.width 1024 --model.layers 24 --json

JSON keys (--json): shared (parameters every worker holds), per_expert (of one expert, in all BASE
  layers), total, active (those a token meets), flops_per_token (of a training step), vocabulary,
  layers (blocks), experts (of each BASE layer; 0: a dense model), base_layers (the blocks before
  each), sublayers (of each expert of a layer), workers, experts_per_worker, parameters_per_worker,
  memory_per_worker {PRECISION: {weights, gradients, adam, total}}, in bytes, without activations;
  one precision, or the two that training.precision auto may choose from.
)";

struct Options {
  std::string config_file;
  std::map<std::string, std::string> knobs;
  int64_t workers = 1;
  bool json = false;
};

Config config_of(const Options& options) {
  TrainRequest request;
  request.config_file = options.config_file;
  for (const auto& [key, value] : options.knobs) request.overrides.emplace_back(key, value);
  Config config = resolve_config(request);
  if (config.experts.groups == 0) config.experts.groups = options.workers;
  check_workers(config, options.workers);
  if (config.model.vocabulary == 0 && config.data.train == std::vector<std::string>{"builtin"})
    config.model.vocabulary = config.data.builtin_vocabulary;
  if (config.model.vocabulary == 0) {
    fail(
        "model.vocabulary: the configuration leaves it to the tokenizer of {}, which is not opened "
        "here; give it, e.g. --model.vocabulary 50304",
        fmt::join(config.data.train, ", "));
  }
  return config;
}

// Bytes of a parameter while it is trained.
struct BytesOfParameter {
  const char* precision;
  int64_t weights, gradients, adam;
};

constexpr BytesOfParameter kFp32 = {"fp32", 4, 4, 8};
constexpr BytesOfParameter kBf16 = {"bf16", 2 + 4, 2, 8};  // the master weights are fp32
constexpr BytesOfParameter kFp64 = {"fp64", 8, 8, 16};

std::vector<BytesOfParameter> possible_bytes(const TrainingConfig& training) {
  if (training.precision == "fp64") return {kFp64};
  if (training.precision == "fp32") return {kFp32};
  if (training.precision == "bf16" || training.device == "cuda") return {kBf16};
  if (training.device == "cpu") return {kFp32};
  return {kFp32, kBf16};
}

// A model with what one of its workers holds.
struct Counted {
  Config config;
  ModelSize size;
  int64_t workers = 1;

  bool is_sparse() const { return config.experts.layers > 0; }
  int64_t experts() const { return is_sparse() ? config.experts.count : 0; }
  int64_t experts_here() const { return experts() / workers; }
  int64_t parameters_here() const { return size.shared + experts_here() * size.per_expert; }
  std::vector<int64_t> places() const { return config.experts.places(config.model.layers); }
  int64_t sublayers() const { return is_sparse() ? config.experts.sublayers_of_layer() : 0; }
};

void print_json(const Counted& model) {
  const int64_t held = model.parameters_here();
  Json memory = Json::object();
  for (const BytesOfParameter& bytes : possible_bytes(model.config.training)) {
    memory[bytes.precision] = {{"weights", held * bytes.weights},
                               {"gradients", held * bytes.gradients},
                               {"adam", held * bytes.adam},
                               {"total", held * (bytes.weights + bytes.gradients + bytes.adam)}};
  }
  const Json out = {{"shared", model.size.shared},
                    {"per_expert", model.size.per_expert},
                    {"total", model.size.total},
                    {"active", model.size.active},
                    {"flops_per_token", model.size.flops_per_token},
                    {"vocabulary", model.config.model.vocabulary},
                    {"layers", model.config.model.layers},
                    {"experts", model.experts()},
                    {"base_layers", model.places()},
                    {"sublayers", model.sublayers()},
                    {"workers", model.workers},
                    {"experts_per_worker", model.experts_here()},
                    {"parameters_per_worker", held},
                    {"memory_per_worker", memory}};
  fmt::print("{}\n", out.dump(2));
}

// "after blocks 8 and 16 of 24"
std::string places_in_words(const Counted& model) {
  const int64_t blocks = model.config.model.layers;
  const std::vector<int64_t> places = model.places();
  if (places.size() == 1 && places.front() == blocks)
    return fmt::format("after the last of {} blocks", blocks);
  if (places.size() == 1) return fmt::format("after block {} of {}", places.front(), blocks);
  return fmt::format("after blocks {} and {} of {}",
                     fmt::join(places.begin(), places.end() - 1, ", "), places.back(), blocks);
}

std::string of_count(int64_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

void print_table(const Counted& model) {
  const ModelConfig& m = model.config.model;
  const auto row = [](const char* name, double value, const std::string& what) {
    fmt::print("  {:<20}{:>8}   {}\n", name, format_count(value), what);
  };
  const auto count = [&](const char* name, int64_t value, const std::string& what) {
    row(name, static_cast<double>(value), what);
  };
  count("shared", model.size.shared,
        fmt::format("{}, width {}, feed-forward {}, vocabulary {}, context {}",
                    of_count(m.layers, "block"), m.width, m.feed_forward_width(), m.vocabulary,
                    m.context));
  if (model.is_sparse()) {
    count("per expert", model.size.per_expert,
          fmt::format("{} {} {}", of_count(model.sublayers(), "sublayer"),
                      model.config.experts.layers > 1 ? "in each of" : "in",
                      of_count(model.config.experts.layers, "BASE layer")));
    count("total", model.size.total,
          fmt::format("with {} of each BASE layer, {}", of_count(model.experts(), "expert"),
                      places_in_words(model)));
    count("active", model.size.active, "those a token meets: shared, and one expert");
  }
  row("FLOPs a token", model.size.flops_per_token, "forward and backward");

  fmt::print("\n{} holds {} parameters",
             model.workers == 1 ? "One worker" : fmt::format("Each of {} workers", model.workers),
             format_count(static_cast<double>(model.parameters_here())));
  if (model.is_sparse())
    fmt::print(", {} of each BASE layer among them", of_count(model.experts_here(), "expert"));
  fmt::print(". To train them:\n  {:<6}{:>10}{:>11}{:>10}{:>10}\n", "", "weights", "gradients",
             "Adam", "total");
  for (const BytesOfParameter& bytes : possible_bytes(model.config.training)) {
    const auto size = [&](int64_t each) {
      return format_bytes(static_cast<double>(model.parameters_here() * each));
    };
    fmt::print("  {:<6}{:>10}{:>11}{:>10}{:>10}\n", bytes.precision, size(bytes.weights),
               size(bytes.gradients), size(bytes.adam),
               size(bytes.weights + bytes.gradients + bytes.adam));
  }
  fmt::print("Activations come on top.\n");
}

int run(const Options& options) {
  const Config config = config_of(options);
  const Counted model{config, model_size(config), options.workers};
  options.json ? print_json(model) : print_table(model);
  return 0;
}

}  // namespace

void add_params(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("params", "How large a model is: parameters, operations, memory");
  command->footer(kFooter);
  command
      ->add_option("CONFIG,--config", options->config_file, "TOML file with any of the knobs below")
      ->type_name("FILE");
  command->add_option("--workers", options->workers, "workers its experts are divided among")
      ->check(at_least(1))
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  add_knob_options(*command, options->knobs);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
