// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/model/update_counts.h"
#include "ballast/studio/plan/memory_advice.h"
#include "ballast/studio/plan/work.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"

namespace ballast::plan {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

struct Groups {
  GroupOnNetwork everyone, shards, replicas;
};

Groups groups_of(const LayoutShape& shape, const Network& network) {
  const int64_t workers = shape.workers, shards = shape.shards;
  const int64_t machine = network.in_machine(workers);
  const int64_t shards_here = std::min(shards, machine);
  return {.everyone = {workers, machine, 1},
          .shards = {shards, shards_here, machine / shards_here},
          .replicas = {shape.replicas, std::max<int64_t>(1, machine / shards), shards_here}};
}

double assignment_seconds(const LayoutShape& shape, const Cluster& cluster) {
  const config::ExpertsConfig& experts = shape.config.experts;
  if (experts.layers == 0 || !experts.traits().balanced) return 0;
  const Device device = cluster.of_worker();
  const double groups = as_double(experts.groups / shape.workers);
  // A GPU solves its groups side by side.
  const double solver = device.assignment * (device.is_cpu() ? groups : 1) +
                        device.assignment_pair * shape.own_tokens * as_double(experts.count);
  return shape.expert_layers * cluster.assignment_seconds.value_or(solver);
}

// A micro-step's calls that bring rows from worker to worker.
struct RowTravel {
  double seconds = 0;
  double beside_backward = 0;  // more of them, which go on while experts compute, backward
};

// In a pass, forward or backward. A chunk's experts compute while the next one comes and the one
// before goes back, each for `seconds`.
double seconds_beside(double chunks, double seconds, double computing) {
  if (chunks == 1) return 0;
  const double of_chunk = computing / chunks;
  return 2 * std::min(of_chunk, seconds) + (chunks - 2) * std::min(of_chunk, 2 * seconds);
}

// `computing`: seconds of what a layer's experts compute of these rows, a third of them forward.
RowTravel travel_of_rows(const LayoutShape& shape, const Wires& wires, const GroupOnNetwork& all,
                         double computing) {
  const config::ExpertsConfig& experts = shape.config.experts;
  if (experts.layers == 0 || shape.workers == 1) return {};
  const auto exchange = [&](double bytes) {
    return experts.hops > 1 ? wires.all_to_all_in_hops(bytes, all) : wires.all_to_all(bytes, all);
  };
  const double row = shape.width * shape.number, chunks = shape.chunks_of_rows();
  const double bytes_of_chunk = shape.expert_rows * row / chunks;
  // OpenMPI's messages within a machine take the cores that compute.
  const double on_cores =
      wires.transport == Transport::kMpi ? wires.all_to_all_within(bytes_of_chunk, all) : 0;
  const double of_chunk = exchange(bytes_of_chunk);
  const double forward = seconds_beside(chunks, of_chunk - on_cores, computing / 3);
  const double backward = seconds_beside(chunks, of_chunk - on_cores, computing * 2 / 3);
  double seconds = 4 * chunks * of_chunk - forward - backward;
  // BASE layers shuffle before and after.
  if (experts.traits().balanced && experts.shuffle) {
    seconds += 4 * exchange(shape.own_tokens * row);
    // A router that looks ahead scores tokens before they are shuffled.
    const double scores = as_double(experts.count) * shape.number;
    if (experts.look_ahead) seconds += 2 * exchange(shape.own_tokens * scores);
  }
  return {.seconds = shape.expert_layers * seconds,
          .beside_backward = shape.expert_layers * backward};
}

double shard_sum_seconds(const LayoutShape& shape, const Wires& wires,
                         const GroupOnNetwork& shards) {
  if (shape.shards == 1) return 0;
  const double row = shape.width * shape.number;
  // Each attention and feed-forward has one forward, one backward, one where it is computed again;
  // embedding and loss have one each.
  const double passes = shape.recomputes_blocks ? 3 : 2;
  const double sums = passes * (shape.blocks + shape.feed_forwards) + 2;
  // Norms over the width of queries and keys: two numbers a row, in fp32.
  const bool norms = shape.config.model.query_key_norm == config::QueryKeyNorm::kWidth;
  const double of_norms = norms ? passes * shape.blocks : 0;
  return sums * wires.all_reduce(shape.tokens * row, shards) +
         of_norms * wires.all_reduce(shape.tokens * 2 * sizeof(float), shards) +
         wires.all_gather(shape.tokens * 3 * sizeof(float), shards) +
         2 * shape.expert_layers * wires.all_gather(shape.own_tokens * row, shards);
}

// Each shard gathers the momentum of the matrices that Muon moves.
double momentum_seconds(const LayoutShape& shape, const Wires& wires,
                        const GroupOnNetwork& shards) {
  if (shape.shards == 1 || shape.config.optimizer.algorithm != config::Algorithm::kMuon) return 0;
  const double numbers = as_double(model::count_updates(shape.config).shared.muon);
  return wires.all_gather(numbers / as_double(shape.shards) * shape.number, shards);
}

// Bytes of gradients that replicas sum.
struct SummedBytes {
  double whole = 0;    // all of which every replica gets
  double divided = 0;  // of which each gets its part, and the others' new weights later
};

SummedBytes summed_bytes(const LayoutShape& shape) {
  const double bytes = (shape.parameters - shape.expert_parameters) * shape.number;
  if (!shape.config.training.shard_optimizer) return {.whole = bytes};
  // Muon's matrices stay whole.
  const model::UpdateCounts shared = model::count_updates(shape.config).shared;
  const double divided = bytes * as_double(shared.adam) / as_double(shared.all());
  return {.whole = bytes - divided, .divided = divided};
}

double chunks_of(double bytes) { return std::ceil(bytes / kChunkBytes); }

double gradient_sum_seconds(const LayoutShape& shape, const Wires& wires,
                            const GroupOnNetwork& replicas) {
  const SummedBytes bytes = summed_bytes(shape);
  // OpenMPI has all buckets under way at once: they share the wire, and wait together.
  const double buckets = wires.transport == Transport::kMpi ? 1 : shape.blocks + 1;
  const double chunks = chunks_of(bytes.divided);
  return (bytes.whole > 0 ? buckets * wires.all_reduce(bytes.whole / buckets, replicas) : 0) +
         (chunks > 0 ? chunks * wires.reduce_scatter(bytes.divided / chunks, replicas) : 0);
}

// Of divided state, once the weights have moved; chunk after chunk.
double weight_gather_seconds(const LayoutShape& shape, const Wires& wires,
                             const GroupOnNetwork& replicas) {
  const double divided = summed_bytes(shape).divided, chunks = chunks_of(divided);
  if (chunks == 0) return 0;
  return chunks * wires.all_gather(divided / chunks / as_double(shape.replicas), replicas);
}

// Loss, norms and counts of a step, and the longest times of its layers: a few numbers each.
double total_seconds(const LayoutShape& shape, const Wires& wires, const GroupOnNetwork& all) {
  const double calls = shape.expert_layers > 0 ? 2 : 1;
  return calls * wires.all_reduce(sizeof(double), all);
}

StepParts step_of(const LayoutShape& shape, const Cluster& cluster) {
  const Device device = cluster.of_worker();
  const Wires wires{cluster.network, device.link_bandwidth, device.pair_bandwidth,
                    device.is_cpu() ? Transport::kMpi : Transport::kNccl};
  const Groups groups = groups_of(shape, cluster.network);
  const double times = as_double(shape.config.training.micro_steps);
  StepParts step;
  step.attention = times * seconds_of(attention_work(shape), device);
  step.feed_forward = times * seconds_of(feed_forward_work(shape), device);
  step.experts = times * seconds_of(experts_work(shape), device);
  step.vocabulary = times * seconds_of(vocabulary_work(shape), device);
  step.assignment = times * assignment_seconds(shape, cluster);
  step.optimizer = seconds_of(optimizer_work(shape, device), device);
  const RowTravel rows =
      travel_of_rows(shape, wires, groups.everyone, seconds_of(routed_rows_work(shape), device));
  step.all_to_all = times * rows.seconds;
  step.shard_sums = times * shard_sum_seconds(shape, wires, groups.shards) +
                    momentum_seconds(shape, wires, groups.shards);
  step.gradient_sums = gradient_sum_seconds(shape, wires, groups.replicas);
  if (cluster.overlap_gradients) {
    const double backward = step.compute() / times * 2 / 3 - rows.beside_backward;
    step.gradient_sums -= std::min(step.gradient_sums, backward);
  }
  step.gradient_sums += weight_gather_seconds(shape, wires, groups.replicas) +
                        total_seconds(shape, wires, groups.everyone);
  return step;
}

std::string words_of(const LayoutShape& shape) {
  std::string words = shape.shards > 1    ? fmt::format("model parallel x{}", shape.shards)
                      : shape.workers > 1 ? "data parallel"
                                          : "one worker";
  const auto experts = static_cast<int64_t>(shape.experts_here);
  if (experts > 0) words += fmt::format(", {} expert{} a worker", experts, experts == 1 ? "" : "s");
  return words;
}

void check_cluster(const Cluster& cluster, config::Precision precision) {
  const Device& device = cluster.device;
  if (precision != config::Precision::kAuto &&
      precision != (device.is_cpu() ? config::Precision::kFp32 : config::Precision::kBf16))
    fail("training.precision: {} is planned in {} alone, got {}", device.name,
         device.is_cpu() ? "fp32" : "half precision (numbers of 2 bytes, bf16 or fp16; say bf16)",
         config::name_of(precision));
  if (device.matrix_rate() <= 0 || device.pass_rate() <= 0)
    fail("{}: its rates are not known; measure them, or give --flops and --bandwidth", device.name);
  if (!cluster.network.is_one_machine(cluster.workers) && cluster.network.bandwidth <= 0)
    fail("{}: the bandwidth between machines is not known", cluster.network.name);
}

}  // namespace

Device Cluster::of_worker() const {
  Device own = device;
  if (!device.is_cpu()) return own;
  const double sharing = as_double(network.in_machine(workers));
  own.matrix_flops /= sharing;
  own.memory_bandwidth /= sharing;
  own.memory /= sharing;
  return own;
}

LayoutPlan plan_layout(const config::Config& config, const Cluster& cluster) {
  const Device device = cluster.of_worker();
  const LayoutShape shape(config, cluster.workers, device);
  LayoutPlan layout;
  layout.model_parallel = shape.shards;
  layout.replicas = shape.replicas;
  layout.experts_per_worker = static_cast<int64_t>(shape.experts_here);
  layout.micro_steps = config.training.micro_steps;
  layout.tokens_per_micro_step = static_cast<int64_t>(shape.tokens);
  layout.words = words_of(shape);
  layout.memory = memory_of(shape, device);
  layout.step = step_of(shape, cluster);
  layout.tokens_per_second =
      as_double(config.training.batch * config.model.context) / layout.step.total();
  layout.fits = fits(layout.memory, device);
  return layout;
}

Plan make_plan(const config::Config& given, const Cluster& cluster) {
  check_cluster(cluster, given.training.precision);
  config::Config config = given;
  if (config.experts.groups == 0) config.experts.groups = cluster.workers;
  config::check_workers(config, cluster.workers);
  Plan plan;
  plan.layouts.push_back(plan_layout(config, cluster));
  for (const int64_t shards : {1, 2, 4, 8}) {
    if (shards == given.training.model_parallel || shards > cluster.workers) continue;
    config.training.model_parallel = shards;
    try {
      config::check_workers(config, cluster.workers);
      plan.layouts.push_back(plan_layout(config, cluster));
    } catch (const UserError& error) {
      plan.refused.push_back({shards, error.what()});
    }
  }
  if (!plan.own().fits) plan.advice = advice_on_memory(given, cluster);
  return plan;
}

}  // namespace ballast::plan
