// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "ballast/comm/agreement.h"
#include "ballast/comm/world.h"
#include "ballast/model/model_size.h"
#include "ballast/studio/experiments/systems.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/median.h"
#include "cli/bench/number_list.h"
#include "cli/bench/options.h"
#include "cli/bench/step_line.h"
#include "cli/bench/step_twin.h"
#include "cli/bench/systems.h"
#include "cli/bench/trainer.h"
#include "cli/bench/twin_process.h"
#include "cli/command.h"
#include "cli/place_options.h"
#include "cli/workers.h"

namespace ballast::cli {
namespace {

using config::Config;
using config::set_knob;
using model::ComputePlace;
using training::StepStats;
using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(
Trains a model in turns with its twin, the same model and step (forward, backward, clipping, AdamW)
in plain PyTorch (benchmarks/twin): a few steps here, a few there, so that a busy machine slows both
alike. On a GPU the twin computes in bf16 under autocast, with cuDNN's attention.
With --experts it is a BASE model, its layer in the middle, in turns with its twin and a dense
model. The dense model has the same blocks, with feed-forwards wider by what an expert computes: as
many operations a token but for the affinities. One worker holds, and updates, all experts. The twin
is the same BASE model (one routing group); the paper's auction, in PyTorch, assigns its tokens.
With --systems the systems that the paper compares run in turns, by any number of workers:
  dense            data parallel
  model_parallel   the same dense model, each layer divided among all workers; where there are some
  base, base_x2,   one, two or three BASE layers; --experts gives experts and the sublayers of all
  base_x3          layers together, of which each has floor(sublayers / layers); default 8,6
  sparsely_gated, switch   gates to two experts, or one, in place of every other feed-forward

Examples
  ballast bench step                              both standard sizes, beside PyTorch if it is found
  ballast bench step --size 512,256,6,8,256,8     vocabulary, width, layers, heads, context, batch
  ballast bench step --decoder relu2              the same with the parts of today's decoders
  ballast bench step --experts 8,2                experts, sublayers of each[, routing groups]
  ballast bench step --systems all --workers 2
  ballast bench step --systems dense,base,switch --experts 16,6 --json
  ballast bench step --python /path/to/python --mode compile --json
The twin needs a Python with torch: `make twin` makes one, and it is found by itself. Without one
ours is measured alone, with a warning; with --python or --mode it is an error.

JSON keys (--json): device, threads, twin (PyTorch version, null: none), mode, sizes, a list of
  {vocabulary, width, layers, heads, context, batch, parameters, step_ms, tokens_per_second,
  gflops_per_second, twin_step_ms, twin_tokens_per_second, speedup (null: no twin of this size)};
  times are medians. With --experts also {twin_assign_ms (the part of twin_step_ms in its auction),
  experts, sublayers, groups, flops_per_token, fastest_ms, optimizer_ms, dense {hidden, parameters,
  flops_per_token, step_ms, fastest_ms, optimizer_ms}, ratio (step / dense step), ratio_per_flop,
  of_dense_but_optimizer (tokens/s over those of dense, if the optimizer took no longer than there),
  assign_share, exchange_share (of the step, in the assignment and in messages to other workers)}.
  With --systems: device, threads (0: each its share), workers, sizes, a list of {vocabulary, width,
  layers, heads, context, batch, experts, systems, a list of {system, words, shards (workers that
  hold one model together), sublayers (of all BASE layers; null: it has none), parameters,
  parameters_of_worker (those of worker 0), active (those a token meets), flops_per_token, step_ms,
  fastest_ms, tokens_per_second (of all workers), of_dense (tokens/s over those of dense; null:
  dense was not measured)}}.
)";

struct Size {
  int64_t vocabulary, width, layers, heads, context, batch;
};

struct Options {
  std::vector<std::string> sizes = {"256,128,4,4,128,16", "4096,256,6,4,256,8"};
  std::vector<std::string> experts = {};  // none: dense models
  std::string systems;
  std::string decoder = "paper";
  int64_t steps = 5;
  int64_t hops = 1, chunks = 1;  // experts.hops, experts.chunks
  bool plain = false;
  BenchOptions bench = {.rounds = 7};
  TwinOptions twin = {};
  WorkerOptions workers = {};
};

Size parse_size(const std::string& text) {
  const auto n = parse_numbers({"--size", "vocabulary,width,layers,heads,context,batch"}, text);
  if (n[0] < 1) fail("--size: want a vocabulary of at least 1, got \"{}\"", text);
  return {n[0], n[1], n[2], n[3], n[4], n[5]};
}

Config config_of(const Options& options, const Size& size) {
  Config config;
  for (const auto& [key, value] : {std::pair("model.vocabulary", size.vocabulary),
                                   {"model.width", size.width},
                                   {"model.layers", size.layers},
                                   {"model.heads", size.heads},
                                   {"model.context", size.context},
                                   {"training.batch", size.batch}}) {
    set_knob(config, key, std::to_string(value));
  }
  if (options.decoder != "paper") {
    for (const auto& [key, value] : {std::pair("positions", "rope"),
                                     {"norm", "rms"},
                                     {"query_key_norm", "head"},
                                     {"biases", "none"},
                                     {"activation", options.decoder.c_str()}})
      set_knob(config, std::string("model.") + key, value);
  }
  config.optimizer.weight_decay = 0.01;
  config.training.graph = !options.plain;
  config.training.steps =
      warm_up_steps(options.steps) + options.bench.rounds * options.steps + kClockedSteps;
  config::check_config(config);
  return config;
}

Config with_experts(Config config, const std::string& text) {
  auto numbers = parse_numbers({"--experts", "experts,sublayers,groups", 2}, text);
  if (numbers[1] < 1) fail("--experts: want at least 1 sublayer, got \"{}\"", text);
  numbers.resize(3, 1);
  set_knob(config, "experts.layers", "1");
  set_knob(config, "experts.count", std::to_string(numbers[0]));
  set_knob(config, "experts.sublayers", std::to_string(numbers[1]));
  set_knob(config, "experts.groups", std::to_string(std::max<int64_t>(numbers[2], 1)));
  config::take_papers_frame(config.experts);  // the twin's
  config::check_config(config);
  config::check_workers(config, 1);
  return config;
}

// The dense model whose blocks do what an expert does, too. Odd widths would be slower.
Config dense_peer(Config config) {
  constexpr int64_t kWhole = 16;
  const int64_t width = config.model.feed_forward_width();
  const auto more = static_cast<double>(config.experts.sublayers * width);
  const auto of_block = more / static_cast<double>(config.model.layers);
  config.model.hidden = width + kWhole * std::llround(of_block / static_cast<double>(kWhole));
  config.experts.layers = 0;
  return config;
}

Json row_of(const Config& config, const std::vector<double>& seconds) {
  const auto tokens = static_cast<double>(config.training.batch * config.model.context);
  const model::ModelSize counted = model::model_size(config);
  const double step = median(seconds);
  return {{"vocabulary", config.model.vocabulary},
          {"width", config.model.width},
          {"layers", config.model.layers},
          {"heads", config.model.heads},
          {"context", config.model.context},
          {"batch", config.training.batch},
          {"parameters", counted.total},
          {"step_ms", 1e3 * step},
          {"tokens_per_second", tokens / step},
          {"gflops_per_second", tokens * counted.flops_per_token / step / 1e9}};
}

// Steps of each round; what the first takes is not kept: it warms up.
int64_t steps_of(const Options& options, int64_t round) {
  return round == 0 ? warm_up_steps(options.steps) : options.steps;
}
void take_turn(const Options& options, training::Trainer& trainer, int64_t round,
               std::vector<StepStats>& taken) {
  for (int64_t i = 0; i < steps_of(options, round); ++i) {
    StepStats stats = trainer.step();
    if (round > 0) taken.push_back(std::move(stats));
  }
}

std::vector<double> of_each(const std::vector<StepStats>& steps,
                            const std::function<double(const StepStats&)>& number) {
  std::vector<double> numbers(steps.size());
  std::ranges::transform(steps, numbers.begin(), number);
  return numbers;
}

double seconds_of(const StepStats& stats) { return stats.seconds; }

Json measure(const Options& options, const Config& config, const ComputePlace& place,
             std::string& twin_version) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  training::Trainer trainer = make_bench_trainer(config, place, world->everyone());
  StepTwin twin(config, place, options.bench, options.twin);
  if (!twin.version().empty()) twin_version = twin.version();
  std::vector<StepStats> steps;
  for (int64_t round = 0; round <= options.bench.rounds; ++round) {
    take_turn(options, trainer, round, steps);
    twin.take_turn(steps_of(options, round));
  }
  const std::vector<double> seconds = of_each(steps, seconds_of);
  Json row = row_of(config, seconds);
  twin.add_to(row, median(seconds));
  return row;
}

Json measure_experts(const Options& options, const Config& config, const ComputePlace& place,
                     std::string& twin_version) {
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  training::Trainer sparse = make_bench_trainer(config, place, world->everyone());
  training::Trainer dense = make_bench_trainer(dense_peer(config), place, world->everyone());
  StepTwin twin(config, place, options.bench, options.twin);
  if (!twin.version().empty()) twin_version = twin.version();
  std::vector<StepStats> steps, dense_steps;
  for (int64_t round = 0; round <= options.bench.rounds; ++round) {
    take_turn(options, sparse, round, steps);
    take_turn(options, dense, round, dense_steps);
    twin.take_turn(steps_of(options, round));
  }
  const auto ours = of_each(steps, seconds_of), others = of_each(dense_steps, seconds_of);
  const model::ModelSize size = model::model_size(config), peer = model::model_size(dense.config());
  const double ratio = median(ours) / median(others);
  const double optimizer = optimizer_seconds(sparse), optimizer_of_dense = optimizer_seconds(dense);
  Json row = row_of(config, ours);
  twin.add_to(row, median(ours));
  row["experts"] = config.experts.count;
  row["sublayers"] = config.experts.sublayers;
  row["groups"] = config.experts.groups;
  row["flops_per_token"] = size.flops_per_token;
  row["fastest_ms"] = 1e3 * std::ranges::min(ours);
  row["dense"] = {
      {"hidden", dense.config().model.hidden},        {"parameters", peer.total},
      {"flops_per_token", peer.flops_per_token},      {"step_ms", 1e3 * median(others)},
      {"fastest_ms", 1e3 * std::ranges::min(others)}, {"optimizer_ms", 1e3 * optimizer_of_dense}};
  row["ratio"] = ratio;
  row["ratio_per_flop"] = ratio * peer.flops_per_token / size.flops_per_token;
  row["optimizer_ms"] = 1e3 * optimizer;
  row["of_dense_but_optimizer"] =
      median(others) / (median(ours) - (optimizer - optimizer_of_dense));
  row["assign_share"] = median(of_each(
      steps, [](const StepStats& s) { return s.layers.front().assign_seconds / s.seconds; }));
  row["exchange_share"] = median(of_each(
      steps, [](const StepStats& s) { return s.layers.front().exchange_seconds / s.seconds; }));
  return row;
}

experiments::SystemExperts experts_of_systems(const Options& options) {
  if (options.experts.empty()) return {};
  if (options.experts.size() > 1) fail("--experts: want it once with --systems");
  auto n = parse_numbers({"--experts", "experts,sublayers,groups", 2}, options.experts.front());
  if (n[1] < 1) fail("--experts: want at least 1 sublayer, got \"{}\"", options.experts.front());
  n.resize(3, 0);
  return {n[0], n[1], n[2]};
}

int run_systems(const Options& options, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  const experiments::SystemExperts experts = experts_of_systems(options);
  const auto names = experiments::parse_systems(options.systems, workers.size());
  std::vector<std::vector<Config>> configs;  // of each size; all is checked first
  for (const std::string& text : options.sizes) {
    const Config dense = config_of(options, parse_size(text));
    configs.emplace_back();
    for (const std::string& name : names) {
      configs.back().push_back(experiments::config_of_system(name, dense, experts, workers.size()));
      configs.back().back().experts.hops = options.hops;
      configs.back().back().experts.chunks = options.chunks;
    }
  }
  ComputePlace place;
  const model::PlaceRequest request{.device = options.bench.device,
                                    .threads = options.bench.threads,
                                    .on_machine = world.place()};
  comm::all_or_none(workers, [&] { place = model::choose_place(request); }, {"device"});
  world.compute_on(place.device);
  Json rows = Json::array();
  for (const auto& of_size : configs) {
    const config::ModelConfig& m = of_size.front().model;
    rows.push_back(
        {{"vocabulary", m.vocabulary},
         {"width", m.width},
         {"layers", m.layers},
         {"heads", m.heads},
         {"context", m.context},
         {"batch", of_size.front().training.batch},
         {"experts", experts.count},
         {"systems",
          measure_systems(names, of_size, {options.bench.rounds, options.steps}, place, workers)}});
    if (workers.rank() != 0) continue;
    for (const Json& system : rows.back()["systems"]) {
      const std::string line = line_of_system(rows.back(), system);
      print_row(options.bench, line);
    }
  }
  if (workers.rank() != 0 || !options.bench.json) return 0;
  const Json out = {{"device", place.device.str()},
                    {"threads", options.bench.threads},
                    {"workers", workers.size()},
                    {"sizes", rows}};
  fmt::print("{}\n", out.dump(2));
  return 0;
}

int run(const Options& options) {
  std::string twin_version;
  std::vector<std::function<Json(const ComputePlace&)>> measurements;  // all is checked first
  for (const std::string& text : options.sizes) {
    const Config config = config_of(options, parse_size(text));
    if (options.experts.empty()) {
      measurements.emplace_back([&options, &twin_version, config](const ComputePlace& place) {
        return measure(options, config, place, twin_version);
      });
    }
    for (const std::string& experts : options.experts) {
      measurements.emplace_back([&options, &twin_version, sparse = with_experts(config, experts)](
                                    const ComputePlace& place) {
        return measure_experts(options, sparse, place, twin_version);
      });
    }
  }
  const ComputePlace place = options.bench.choose_place();
  Json rows = Json::array();
  for (const auto& measurement : measurements) {
    rows.push_back(measurement(place));
    print_row(options.bench, step_line(rows.back(), options.twin.mode(), twin_version));
  }
  if (options.bench.json) {
    const Json out = {{"device", place.device.str()},
                      {"threads", options.bench.num_threads()},
                      {"twin", twin_version.empty() ? Json() : Json(twin_version)},
                      {"mode", options.twin.mode()},
                      {"sizes", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

int run_or_launch(const Options& options) {
  if (options.systems.empty()) {
    if (options.workers.workers > 0) fail("--workers: want --systems with it");
    if (options.hops > 1 || options.chunks > 1) fail("--hops, --chunks: want --systems with them");
    if (options.decoder != "paper" && !options.experts.empty())
      fail("--decoder: there is no twin with experts of other decoders than the paper's");
    return run(options);
  }
  if (options.twin.is_asked_for()) fail("--python, --mode: there is no twin of --systems");
  if (must_launch(options.workers)) return launch_workers(options.workers, {}, {});
  return run_as_worker(options.workers,
                       [&](comm::World& world) { return run_systems(options, world); });
}

}  // namespace

void add_bench_step(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "step", "Training steps, beside the same model in PyTorch", kExamples);
  command->add_option("--size", options->sizes, "vocabulary,width,layers,heads,context,batch")
      ->type_name("V,D,L,H,S,B")
      ->capture_default_str();
  command
      ->add_option("--experts", options->experts,
                   "experts,sublayers[,groups]: a BASE model, beside a dense one that computes as "
                   "much")
      ->type_name("E,N[,G]");
  command
      ->add_option("--decoder", options->decoder,
                   "paper, or a modern one, by its activation: rope, RMSNorm, normed queries and "
                   "keys, no biases")
      ->check(CLI::IsMember({"paper", "relu2", "swiglu"}))
      ->capture_default_str();
  add_device_option(*command, options->bench.device);
  add_bench_options(*command, options->bench);
  add_number(*command, "--steps", options->steps, "steps a turn")->capture_default_str();
  command
      ->add_option("--systems", options->systems,
                   "all, or names with commas between: dense, model_parallel, base, base_x2, "
                   "base_x3, sparsely_gated, switch")
      ->type_name("NAMES");
  command->add_option("--hops", options->hops, "with --systems: experts.hops of those with experts")
      ->check(from_to(1, 2))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--chunks", options->chunks,
                   "with --systems: experts.chunks of those with experts")
      ->check(from_to(1, 64))
      ->capture_default_str()
      ->type_name("N");
  add_worker_options(*command, options->workers);
  add_twin_options(*command, options->twin);
  command->add_flag("--plain", options->plain,
                    "on a GPU, compute steps plainly instead of as a recorded graph");
  command->callback([options, &chosen] { chosen = [options] { return run_or_launch(*options); }; });
}

}  // namespace ballast::cli
