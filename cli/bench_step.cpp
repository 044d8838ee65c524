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
#include "ballast/experiments/systems.h"
#include "ballast/model/model_size.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "ballast/system/progress.h"
#include "cli/at_least.h"
#include "cli/bench_systems.h"
#include "cli/bench_trainer.h"
#include "cli/commands.h"
#include "cli/median.h"
#include "cli/number_list.h"
#include "cli/twin_process.h"
#include "cli/workers.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(
The same model and step (forward, backward, clipping, AdamW) as the plain PyTorch twin in
benchmarks/twin, in turns: a few steps here, a few there, so that noise meets both alike.
With --experts a BASE model instead, its layer in the middle, beside a dense one, in turns: the same
blocks, with feed-forwards wider by what an expert computes. The two do the same operations a token
but for the affinities; one worker holds, and updates, all experts.
With --systems those that the paper compares, of the same blocks, in turns, by any number of workers:
  dense            data parallel
  model_parallel   dense, each layer divided among all workers; where there are several
  base, base_x3    BASE layers: one, three; --experts: experts, sublayers of all layers together
  sparsely_gated   gates to two experts, and
  switch           to one, in place of every other feed-forward, with the paper's capacities

Examples
  ballast bench step                              both standard sizes, beside PyTorch if it is found
  ballast bench step --size 512,256,6,8,256,8     vocabulary, width, layers, heads, context, batch
  ballast bench step --experts 8,2                experts, sublayers of each[, routing groups]
  ballast bench step --systems all --workers 2
  ballast bench step --systems dense,base,switch --experts 16,6 --json
  ballast bench step --python /path/to/python --mode compile --json
The twin needs a Python with torch: `make twin` makes one, and it is found by itself.

JSON keys (--json): device, threads, twin (PyTorch version, null: none), mode, sizes, a list of
  {vocabulary, width, layers, heads, context, batch, parameters, step_ms, tokens_per_second,
  gflops_per_second, twin_step_ms, twin_tokens_per_second, speedup}; times are medians. With
  --experts also {experts, sublayers, groups, flops_per_token, fastest_ms, dense {hidden, parameters,
  flops_per_token, step_ms, fastest_ms}, ratio (step / dense step), ratio_per_flop, assign_share,
  exchange_share (of the step, in the assignment and in messages to other workers)}. With --systems:
  device, threads (0: each its share), workers, sizes, a list of {vocabulary, width, layers, heads,
  context, batch, experts, systems, a list of {system, words, parameters, active (those a token meets),
  flops_per_token, step_ms, fastest_ms, tokens_per_second (of all workers), of_dense (tokens/s by
  those of dense; null: it was not measured)}}.
)";

struct Size {
  int64_t vocabulary, width, layers, heads, context, batch;
};

struct Options {
  std::vector<std::string> sizes = {"256,128,4,4,128,16", "4096,256,6,4,256,8"};
  std::vector<std::string> experts = {};  // none: dense models
  std::string device = "auto", systems;
  int64_t threads = 0, rounds = 7, steps = 5;
  bool json = false, plain = false;
  TwinOptions twin = {};
  WorkerOptions workers = {};
};

Size parse_size(const std::string& text) {
  const auto n = parse_numbers({"--size", "vocabulary,width,layers,heads,context,batch"}, text);
  if (n[0] < 1) fail("--size: want a vocabulary of at least 1, got \"{}\"", text);
  return {n[0], n[1], n[2], n[3], n[4], n[5]};
}

Twin start_twin(const Options& options, const Size& size, const ComputePlace& place) {
  const Json arguments = {
      {"vocabulary", size.vocabulary},
      {"width", size.width},
      {"layers", size.layers},
      {"heads", size.heads},
      {"context", size.context},
      {"batch", size.batch},
      {"threads", options.threads > 0 ? static_cast<size_t>(options.threads) : num_cores()},
      {"device", place.device.is_cpu() ? "cpu" : "cuda"},
      {"mode", options.twin.mode}};
  return start_twin(options.twin, "step_twin.py", arguments.dump());
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
  config.optimizer.weight_decay = 0.01;
  config.training.graph = !options.plain;
  config.training.steps = (options.rounds + 1) * options.steps;
  check_config(config);
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
  check_config(config);
  check_workers(config, 1);
  return config;
}

// The dense model whose blocks do what an expert does, too. Odd widths would be slower.
Config dense_peer(Config config) {
  constexpr int64_t kWhole = 16;
  const ModelConfig& m = config.model;
  const auto more = static_cast<double>(config.experts.sublayers * m.feed_forward_width());
  config.model.hidden =
      m.feed_forward_width() +
      kWhole * std::llround(more / static_cast<double>(m.layers) / static_cast<double>(kWhole));
  config.experts.layers = 0;
  return config;
}

Json row_of(const Config& config, const std::vector<double>& seconds) {
  const auto tokens = static_cast<double>(config.training.batch * config.model.context);
  const ModelSize counted = model_size(config);
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
          {"gflops_per_second", tokens * counted.flops_per_token / step / 1e9},
          {"twin_step_ms", nullptr},
          {"twin_tokens_per_second", nullptr},
          {"speedup", nullptr}};
}

Json measure(const Options& options, const Size& size, const ComputePlace& place,
             std::string& twin_version) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  Trainer trainer = make_bench_trainer(config_of(options, size), place, world->everyone());
  const Twin twin = start_twin(options, size, place);
  if (twin.process != nullptr) twin_version = twin.version;
  std::vector<double> ours, theirs;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first warms up
    for (int64_t i = 0; i < options.steps; ++i) {
      const double seconds = trainer.step().seconds;
      if (round > 0) ours.push_back(seconds);
    }
    if (twin.process == nullptr) continue;
    twin.process->write_line(std::to_string(options.steps));
    const auto seconds = Json::parse(twin.process->read_line()).get<std::vector<double>>();
    if (round > 0) theirs.insert(theirs.end(), seconds.begin(), seconds.end());
  }
  Json row = row_of(trainer.config(), ours);
  if (!theirs.empty()) {
    const double other = median(theirs);
    row["twin_step_ms"] = 1e3 * other;
    row["twin_tokens_per_second"] = static_cast<double>(size.batch * size.context) / other;
    row["speedup"] = other / median(ours);
  }
  return row;
}

Json measure_experts(const Options& options, const Config& config, const ComputePlace& place) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  Trainer sparse = make_bench_trainer(config, place, world->everyone());
  Trainer dense = make_bench_trainer(dense_peer(config), place, world->everyone());
  std::vector<double> ours, theirs, assign_shares, exchange_shares;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first warms up
    for (int64_t i = 0; i < options.steps; ++i) {
      const StepStats stats = sparse.step();
      if (round == 0) continue;
      ours.push_back(stats.seconds);
      assign_shares.push_back(stats.layers.front().assign_seconds / stats.seconds);
      exchange_shares.push_back(stats.layers.front().exchange_seconds / stats.seconds);
    }
    for (int64_t i = 0; i < options.steps; ++i) {
      const double seconds = dense.step().seconds;
      if (round > 0) theirs.push_back(seconds);
    }
  }
  const ModelSize size = model_size(config), peer = model_size(dense.config());
  const double ratio = median(ours) / median(theirs);
  Json row = row_of(config, ours);
  row["experts"] = config.experts.count;
  row["sublayers"] = config.experts.sublayers;
  row["groups"] = config.experts.groups;
  row["flops_per_token"] = size.flops_per_token;
  row["fastest_ms"] = 1e3 * std::ranges::min(ours);
  row["dense"] = {{"hidden", dense.config().model.hidden},
                  {"parameters", peer.total},
                  {"flops_per_token", peer.flops_per_token},
                  {"step_ms", 1e3 * median(theirs)},
                  {"fastest_ms", 1e3 * std::ranges::min(theirs)}};
  row["ratio"] = ratio;
  row["ratio_per_flop"] = ratio * peer.flops_per_token / size.flops_per_token;
  row["assign_share"] = median(assign_shares);
  row["exchange_share"] = median(exchange_shares);
  return row;
}

std::string line_of(const Options& options, const Json& row, const std::string& twin_version) {
  const auto number = [](const Json& value) { return value.get<double>(); };
  const auto whole = [&](const char* key) { return row[key].get<int64_t>(); };
  std::string beside;
  if (row.contains("experts")) {
    const Json& dense = row["dense"];
    beside = fmt::format(
        " | E={} sublayers={} groups={}, {} FLOP a token | dense of hidden {}, {} FLOP a token: "
        "{:.2f} ms | {:.3f}x, a FLOP {:.3f}x | assignment {:.1f} %, messages {:.1f} %",
        whole("experts"), whole("sublayers"), whole("groups"),
        format_count(number(row["flops_per_token"])), dense["hidden"].get<int64_t>(),
        format_count(number(dense["flops_per_token"])), number(dense["step_ms"]),
        number(row["ratio"]), number(row["ratio_per_flop"]), 100 * number(row["assign_share"]),
        100 * number(row["exchange_share"]));
  } else if (!row["speedup"].is_null()) {
    beside = fmt::format(" | PyTorch {} {} {:.2f} ms | {:.2f}x", options.twin.mode, twin_version,
                         number(row["twin_step_ms"]), number(row["speedup"]));
  }
  return fmt::format(
      "V={} D={} L={} H={} S={} B={} | {:.2f} ms a step | {:.0f} tok/s | {:.0f} GFLOP/s{}",
      whole("vocabulary"), whole("width"), whole("layers"), whole("heads"), whole("context"),
      whole("batch"), number(row["step_ms"]), number(row["tokens_per_second"]),
      number(row["gflops_per_second"]), beside);
}

SystemExperts experts_of_systems(const Options& options) {
  if (options.experts.empty()) return {};
  if (options.experts.size() > 1) fail("--experts: want it once with --systems");
  auto n = parse_numbers({"--experts", "experts,sublayers,groups", 2}, options.experts.front());
  if (n[1] < 1) fail("--experts: want at least 1 sublayer, got \"{}\"", options.experts.front());
  n.resize(3, 0);
  return {n[0], n[1], n[2]};
}

int run_systems(const Options& options, World& world) {
  Communicator& workers = world.everyone();
  const SystemExperts experts = experts_of_systems(options);
  const auto names = parse_systems(options.systems, workers.size());
  std::vector<std::vector<Config>> configs;  // of each size; all is checked first
  for (const std::string& text : options.sizes) {
    const Config dense = config_of(options, parse_size(text));
    configs.emplace_back();
    for (const std::string& name : names)
      configs.back().push_back(config_of_system(name, dense, experts, workers.size()));
  }
  ComputePlace place;
  const PlaceRequest request{
      .device = options.device, .threads = options.threads, .on_machine = world.place()};
  all_or_none(workers, [&] { place = choose_place(request); }, {"device"});
  world.compute_on(place.device);
  Json rows = Json::array();
  for (const auto& of_size : configs) {
    const ModelConfig& m = of_size.front().model;
    rows.push_back({{"vocabulary", m.vocabulary},
                    {"width", m.width},
                    {"layers", m.layers},
                    {"heads", m.heads},
                    {"context", m.context},
                    {"batch", of_size.front().training.batch},
                    {"experts", experts.count},
                    {"systems", measure_systems(names, of_size, {options.rounds, options.steps},
                                                place, workers)}});
    if (workers.rank() != 0) continue;
    for (const Json& system : rows.back()["systems"]) {
      const std::string line = line_of_system(rows.back(), system);
      options.json ? log_line(line) : fmt::print("{}\n", line);
    }
    std::fflush(stdout);
  }
  if (workers.rank() != 0 || !options.json) return 0;
  const Json out = {{"device", place.device.str()},
                    {"threads", options.threads},
                    {"workers", workers.size()},
                    {"sizes", rows}};
  fmt::print("{}\n", out.dump(2));
  return 0;
}

int run(const Options& options) {
  std::string twin_version;
  std::vector<std::function<Json(const ComputePlace&)>> measurements;  // all is checked first
  for (const std::string& text : options.sizes) {
    const Size size = parse_size(text);
    const Config config = config_of(options, size);
    if (options.experts.empty()) {
      measurements.emplace_back([&options, &twin_version, size](const ComputePlace& place) {
        return measure(options, size, place, twin_version);
      });
    }
    for (const std::string& experts : options.experts) {
      measurements.emplace_back(
          [&options, sparse = with_experts(config, experts)](const ComputePlace& place) {
            return measure_experts(options, sparse, place);
          });
    }
  }
  const ComputePlace place = choose_place({.device = options.device, .threads = options.threads});
  Json rows = Json::array();
  for (const auto& measurement : measurements) {
    rows.push_back(measurement(place));
    // Rows as they come: the result itself, or beside --json what people see meanwhile.
    const std::string line = line_of(options, rows.back(), twin_version);
    options.json ? log_line(line) : fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  if (options.json) {
    const Json out = {
        {"device", place.device.str()},
        {"threads", options.threads > 0 ? static_cast<size_t>(options.threads) : num_cores()},
        {"twin", twin_version.empty() ? Json() : Json(twin_version)},
        {"mode", options.twin.mode},
        {"sizes", rows}};
    fmt::print("{}\n", out.dump(2));
  }
  return 0;
}

int run_or_launch(const Options& options) {
  if (options.systems.empty()) {
    if (options.workers.workers > 0) fail("--workers: want --systems with it");
    return run(options);
  }
  if (must_launch(options.workers)) return launch_workers(options.workers, {}, {});
  return run_as_worker(options.workers, [&](World& world) { return run_systems(options, world); });
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("step", "Training steps, beside the same model in PyTorch");
  command->footer(kExamples);
  command->add_option("--size", options->sizes, "vocabulary,width,layers,heads,context,batch")
      ->type_name("V,D,L,H,S,B")
      ->capture_default_str();
  command
      ->add_option("--experts", options->experts,
                   "experts,sublayers[,groups]: a BASE model, beside a dense one that computes as "
                   "much")
      ->type_name("E,N[,G]");
  command->add_option("--device", options->device, "where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all cores")
      ->check(at_least(0))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--rounds", options->rounds, "turns each takes")
      ->check(at_least(1))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--steps", options->steps, "steps a turn")
      ->check(at_least(1))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--systems", options->systems,
                   "all, or names with commas between: dense, model_parallel, base, base_x3, "
                   "sparsely_gated, switch")
      ->type_name("NAMES");
  add_worker_options(*command, options->workers);
  add_twin_options(*command, options->twin);
  command->add_flag("--plain", options->plain,
                    "on a GPU, compute steps plainly instead of as a recorded graph");
  command->add_flag("--json", options->json, "print the result as one JSON object on stdout");
  command->callback([options, &chosen] { chosen = [options] { return run_or_launch(*options); }; });
}

}  // namespace ballast::cli
