// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ballast/config/system_words.h"
#include "ballast/model/device.h"
#include "ballast/model/model_size.h"
#include "ballast/record/hardware.h"
#include "ballast/studio/plan/measured_bandwidth.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"
#include "ballast/system/progress.h"
#include "ballast/training/compute_rate.h"
#include "cli/at_least.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/sized_config.h"

namespace ballast::cli {
namespace {

using plan::LayoutPlan;
using Json = nlohmann::ordered_json;

constexpr int kNothingFits = 3;  // the exit code

constexpr const char* kFooter = R"(
An estimate from the configuration and a few rates: nothing is trained, no data opened. docs/plan.md
has the formulas, where the rates come from, and how far off predictions were: at most 7 % of the
paper's tokens per second on 128 V100, 17 % of our own steps on an H200.
A worker is one GPU. With --device cpu it is one of those that share this machine, its rates and its
memory. The machine's rates are measured, so other programs should rest meanwhile; --flops and
--bandwidth give them instead. Networks: infiniband is the paper's, machines of 8 GPUs with an
adapter of their own; ethernet is the same with a slower adapter; nvlink joins all workers as in one
machine.
Exit code 3: no layout fits, with this many workers of that device.

Examples
  ballast plan configs/paper_base_44b.toml --workers 128 --device v100
  ballast plan configs/paper_base_44b.toml --workers 32 --device v100       (says what would fit)
  ballast plan configs/paper_dense_6b.toml --workers 64 --device h100 --machine-bandwidth 300e9
  ballast plan configs/paper_switch_52b.toml --workers 128 --device a100 --network ethernet --json
  ballast plan configs/first_run.toml --device cpu
  ballast plan configs/first_run.toml --device cpu --flops 2e11 --bandwidth 2e10

JSON keys (--json): system (in words), parameters, workers, device (what one worker has) {name,
  flops (operations a second that matrix products reach), bandwidth (bytes a second), launch
  (seconds to start an operation), memory (bytes, null: not known)}, network {name,
  workers_per_machine (0: all), bandwidth (of a machine), latency}, tokens_per_step, layouts, the
  config's own first, a list of {layout (in words), model_parallel, replicas, experts_per_worker (of
  each layer), micro_steps, tokens_per_micro_step (of a replica), memory {weights, gradients,
  optimizer, activations, buffers, total} in bytes, fits, step {attention, feed_forward, experts,
  assignment, vocabulary, optimizer, communication {gradients, all_to_all, shards, total}, total} in
  seconds, tokens_per_second}, refused, a list of {model_parallel, reason}, advice (what would fit,
  where the config's own layout does not).
)";

struct Options {
  ConfigOptions config;
  int64_t workers = 0;  // 0: those of one replica
  std::string device = "v100", network = "infiniband";
  // Instead of the device's and network's own; 0: not given.
  double flops = 0, bandwidth = 0, machine_bandwidth = 0, latency = 0, assignment = 0;
  int64_t workers_per_machine = 0;
  bool overlap = false, json = false;
};

// What this machine reaches, as far as the options do not say it, with the threads of all `workers`
// that share it (0: all cores).
void measure_cpu(plan::Device& device, const Options& options, int64_t threads_of_worker,
                 int64_t workers) {
  const auto cores = static_cast<int64_t>(num_cores());
  const int64_t threads = std::min(cores, threads_of_worker * workers);
  const model::ComputePlace place =
      model::choose_place({.device = config::DeviceChoice::kCpu, .threads = threads});
  if (options.flops == 0) {
    log_info("measuring matrix products ...");
    device.matrix_flops = training::measure_matrix_rate(place);
  }
  if (options.bandwidth == 0) {
    log_info("measuring memory ...");
    device.memory_bandwidth = plan::measure_memory_bandwidth(static_cast<size_t>(threads));
  }
  const nlohmann::json memory = record::describe_hardware().at("memory_bytes");
  if (!memory.is_null()) device.memory = memory.get<double>();
}

plan::Cluster cluster_of(const Options& options, const config::Config& config) {
  plan::Cluster cluster{
      .workers = options.workers > 0 ? options.workers : config.training.model_parallel,
      .device = plan::find_device(options.device),
      .network = plan::find_network(options.network),
      .overlap_gradients = options.overlap};
  if (options.workers_per_machine > 0)
    cluster.network.machine_workers = options.workers_per_machine;
  if (cluster.device.is_cpu())
    measure_cpu(cluster.device, options, config.training.threads,
                cluster.network.in_machine(cluster.workers));
  if (options.flops > 0) {
    cluster.device.matrix_flops = options.flops;
    cluster.device.efficiency = 1;
  }
  if (options.bandwidth > 0) {
    cluster.device.memory_bandwidth = options.bandwidth;
    cluster.device.bandwidth_share = 1;
  }
  if (options.machine_bandwidth > 0) cluster.network.bandwidth = options.machine_bandwidth;
  if (options.latency > 0) cluster.network.latency = options.latency;
  if (options.assignment > 0) cluster.assignment_seconds = options.assignment;
  return cluster;
}

using Part = std::pair<const char*, double>;

std::vector<Part> named(const plan::MemoryParts& memory) {
  return {{"weights", memory.weights},     {"gradients", memory.gradients},
          {"optimizer", memory.optimizer}, {"activations", memory.activations},
          {"buffers", memory.buffers},     {"total", memory.total()}};
}

std::vector<Part> named(const plan::StepParts& step) {
  return {{"attention", step.attention},     {"feed-forward", step.feed_forward},
          {"experts", step.experts},         {"assignment", step.assignment},
          {"vocabulary", step.vocabulary},   {"optimizer", step.optimizer},
          {"gradients", step.gradient_sums}, {"all_to_all", step.all_to_all},
          {"shards", step.shard_sums},       {"total", step.total()}};
}

Json json_of(const plan::StepParts& step) {
  return {{"attention", step.attention},
          {"feed_forward", step.feed_forward},
          {"experts", step.experts},
          {"assignment", step.assignment},
          {"vocabulary", step.vocabulary},
          {"optimizer", step.optimizer},
          {"communication",
           {{"gradients", step.gradient_sums},
            {"all_to_all", step.all_to_all},
            {"shards", step.shard_sums},
            {"total", step.communication()}}},
          {"total", step.total()}};
}

Json json_of(const LayoutPlan& layout) {
  Json memory = Json::object();
  for (const auto& [name, bytes] : named(layout.memory)) memory[name] = bytes;
  return {{"layout", layout.words},
          {"model_parallel", layout.model_parallel},
          {"replicas", layout.replicas},
          {"experts_per_worker", layout.experts_per_worker},
          {"micro_steps", layout.micro_steps},
          {"tokens_per_micro_step", layout.tokens_per_micro_step},
          {"memory", memory},
          {"fits", layout.fits},
          {"step", json_of(layout.step)},
          {"tokens_per_second", layout.tokens_per_second}};
}

void print_json(const config::Config& config, const plan::Cluster& cluster,
                const plan::Plan& plan) {
  const plan::Device device = cluster.of_worker();
  const plan::Network& network = cluster.network;
  Json layouts = Json::array(), refused = Json::array();
  for (const LayoutPlan& layout : plan.layouts) layouts.push_back(json_of(layout));
  for (const plan::RefusedLayout& layout : plan.refused)
    refused.push_back({{"model_parallel", layout.model_parallel}, {"reason", layout.reason}});
  const Json out = {{"system", config::system_in_words(config)},
                    {"parameters", model::model_size(config).total},
                    {"workers", cluster.workers},
                    {"device",
                     {{"name", device.name},
                      {"flops", device.matrix_rate()},
                      {"bandwidth", device.pass_rate()},
                      {"launch", device.launch},
                      {"memory", device.memory > 0 ? Json(device.memory) : Json()}}},
                    {"network",
                     {{"name", network.name},
                      {"workers_per_machine", network.machine_workers},
                      {"bandwidth", network.bandwidth},
                      {"latency", network.latency}}},
                    {"tokens_per_step", config.training.batch * config.model.context},
                    {"layouts", layouts},
                    {"refused", refused},
                    {"advice", plan.advice}};
  fmt::print("{}\n", out.dump(2));
}

// "1.24 s", "38 ms"
std::string format_seconds(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.3g} ms", 1e3 * seconds);
}

std::string division_of(const LayoutPlan& layout) {
  if (layout.model_parallel > 1) return fmt::format("model parallel x{}", layout.model_parallel);
  return layout.replicas > 1 ? "data parallel" : "one worker";
}

void print_row(const std::string& name, const std::vector<std::string>& values) {
  fmt::print("  {:<14}", name);
  for (const std::string& value : values) fmt::print("{:>19}", value);
  fmt::print("\n");
}

// A column for each layout, a row for each part that some layout has.
template <typename Parts, typename Format>
void print_parts(const plan::Plan& plan, Parts LayoutPlan::*parts, Format format) {
  std::vector<std::vector<Part>> of_layout;
  for (const LayoutPlan& layout : plan.layouts) of_layout.push_back(named(layout.*parts));
  for (size_t i = 0; i < of_layout[0].size(); ++i) {
    std::vector<std::string> values;
    double all = 0;
    for (const std::vector<Part>& layout : of_layout) {
      const double value = layout[i].second;
      values.push_back(value == 0 ? "-" : format(value));
      all += value;
    }
    if (all > 0) print_row(of_layout[0][i].first, values);
  }
}

template <typename Tell>
std::vector<std::string> of_layouts(const plan::Plan& plan, Tell tell) {
  std::vector<std::string> values;
  for (const LayoutPlan& layout : plan.layouts) values.push_back(tell(layout));
  return values;
}

void print_text(const config::Config& config, const plan::Cluster& cluster,
                const plan::Plan& plan) {
  const auto tokens = static_cast<double>(config.training.batch * config.model.context);
  const plan::Device device = cluster.of_worker();
  fmt::print("{}: {} parameters\n", config::system_in_words(config),
             format_count(static_cast<double>(model::model_size(config).total)));
  fmt::print("{} x {}: products at {:.3g} TFLOP/s, memory at {}/s", cluster.workers, device.name,
             device.matrix_rate() / 1e12, format_bytes(device.pass_rate()));
  if (!cluster.network.is_one_machine(cluster.workers))
    fmt::print("; {}, machines of {}, {}/s each", cluster.network.name,
               cluster.network.machine_workers, format_bytes(cluster.network.bandwidth));
  fmt::print("\n\n");
  print_row("", of_layouts(plan, [](const LayoutPlan& layout) { return division_of(layout); }));
  if (config.experts.layers > 0) {
    print_row("experts each", of_layouts(plan, [](const LayoutPlan& layout) {
                return std::to_string(layout.experts_per_worker);
              }));
  }
  fmt::print("Predicted memory of a worker");
  if (device.memory > 0) fmt::print(", of {}", format_bytes(device.memory));
  fmt::print("\n");
  print_parts(plan, &LayoutPlan::memory, format_bytes);
  print_row("", of_layouts(plan, [](const LayoutPlan& layout) {
              return layout.fits ? "fits" : "does not fit";
            }));
  fmt::print("A step of {} tokens\n", format_count(tokens));
  print_parts(plan, &LayoutPlan::step, format_seconds);
  print_row("tokens/s", of_layouts(plan, [](const LayoutPlan& layout) {
              return format_count(layout.tokens_per_second);
            }));
  for (const plan::RefusedLayout& layout : plan.refused)
    fmt::print("\nNot model parallel x{}: {}\n", layout.model_parallel, layout.reason);
  if (plan.own().fits) return;
  fmt::print("\nIts own layout, {}, does not fit. {}\n", plan.own().words,
             plan.advice.empty() ? "Nothing that was tried does: a smaller model would (--scale)."
                                 : "What would:");
  for (const std::string& way : plan.advice) fmt::print("  {}\n", way);
}

int run(const Options& options) {
  const config::Config config = read_sized_config(options.config, options.config.file);
  const plan::Cluster cluster = cluster_of(options, config);
  const plan::Plan plan = plan::make_plan(config, cluster);
  if (options.json) {
    print_json(config, cluster, plan);
  } else {
    print_text(config, cluster, plan);
  }
  return std::ranges::any_of(plan.layouts, &LayoutPlan::fits) ? 0 : kNothingFits;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "plan", "What a model would take of a cluster: memory, step time, tokens a second",
      kFooter);
  add_config_options(*command, options->config, "TOML file with any of the knobs below");
  add_number(*command, "--workers", options->workers,
             "workers that train it [training.model_parallel]");
  command
      ->add_option(
          "--device", options->device,
          fmt::format("what a worker is: {} [v100]", fmt::join(plan::device_names(), ", ")))
      ->type_name("NAME");
  command
      ->add_option(
          "--network", options->network,
          fmt::format("what joins them: {} [infiniband]", fmt::join(plan::network_names(), ", ")))
      ->type_name("NAME");
  const auto rate = [&](const char* name, double& value, const char* help) {
    command->add_option(name, value, help)->check(above_zero())->type_name("RATE");
  };
  rate("--flops", options->flops,
       "operations a second that its matrix products reach [the device's]");
  rate("--bandwidth", options->bandwidth, "bytes a second that its memory reaches [the device's]");
  rate("--machine-bandwidth", options->machine_bandwidth,
       "bytes a second into and out of a machine [the network's]");
  add_number(*command, "--workers-per-machine", options->workers_per_machine,
             "workers that share that [the network's]");
  command
      ->add_option("--latency", options->latency,
                   "seconds of a message from machine to machine [the network's]")
      ->check(above_zero())
      ->type_name("SECONDS");
  command
      ->add_option("--assignment", options->assignment,
                   "seconds of the balanced assignment of a BASE layer and micro-step [measured]")
      ->check(above_zero())
      ->type_name("SECONDS");
  command->add_flag("--overlap", options->overlap,
                    "sums of gradients go on under the last backward pass [counted in full]");
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
