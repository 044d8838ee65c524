// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/work.h"

#include <algorithm>
#include <cmath>

#include "ballast/model/model_size.h"
#include "ballast/model/update_counts.h"

namespace ballast::plan {
namespace {

// A matrix is read forward and backward, its gradient read and written.
constexpr double kWeightPasses = 4;
constexpr double kUsableMemory = 0.95;
// A CPU's heap, which what comes and goes leaves full of holes, and the libraries' own memory: of
// measured peaks (docs/profiling.md).
constexpr double kHeapShare = 0.3, kCpuLibraries = 40e6;

// Bytes of chunks of gradients that are summed at a time (training/gradient_reducer.h).
constexpr double kChunksUnderWay = 4 * kChunkBytes;

double as_double(int64_t value) { return static_cast<double>(value); }

// Rows that the experts of one layer compute on this worker; blocks are filled up to the ceiling.
double rows_of_experts(const config::Config& config, double tokens_of_all, double workers) {
  const config::ExpertsConfig& experts = config.experts;
  if (experts.layers == 0) return 0;
  const double count = as_double(experts.count), groups = as_double(experts.groups);
  const double fair = tokens_of_all / groups / count;
  const double capacity = experts.traits().balanced ? as_double(experts.experts_of_token())
                                                    : experts.training_capacity();
  const double rows = capacity > 0 ? groups * count * std::ceil(capacity * fair * (1 - 1e-12))
                                   : tokens_of_all * as_double(experts.experts_of_token());
  return rows / workers;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  products += other.products;
  attention += other.attention;
  bytes += other.bytes;
  operations += other.operations;
  return *this;
}

Work Work::operator*(double times) const {
  return {products * times, attention * times, bytes * times, operations * times};
}

double seconds_of(const Work& work, const Device& device) {
  return (work.products + work.attention / device.attention_rate) / device.matrix_rate() +
         work.bytes / device.pass_rate() + work.operations * device.launch;
}

LayoutShape::LayoutShape(const config::Config& of, int64_t all_workers, const Device& device)
    : config(of),
      workers(all_workers),
      shards(of.training.model_parallel),
      replicas(all_workers / of.training.model_parallel),
      width(as_double(of.model.width)),
      hidden(as_double(of.model.feed_forward_width())),
      blocks(as_double(of.model.layers)),
      feed_forwards(blocks -
                    (of.experts.replaces_feed_forwards() ? as_double(of.experts.layers) : 0)),
      queries(as_double(of.model.query_width())),
      keys(as_double(of.model.kv_width())),
      matrices(of.model.is_gated() ? 3 : 2),
      tokens(as_double(of.training.batch / of.training.micro_steps / replicas * of.model.context)),
      own_tokens(tokens / as_double(shards)),
      number(as_double(device.working)),
      expert_rows(rows_of_experts(of, tokens * as_double(replicas), as_double(all_workers))),
      expert_layers(as_double(of.experts.layers)),
      expert_hidden(as_double(of.experts.width_of_expert(of.model))),
      shared_hidden(of.experts.layers > 0 ? as_double(of.experts.width_of_shared(of.model)) : 0),
      expert_sublayers(of.experts.layers > 0 ? as_double(of.experts.sublayers_of_layer()) : 0),
      experts_here(of.experts.layers > 0 ? as_double(of.experts.count / all_workers) : 0),
      parameters(as_double(model::parameters_of_worker(of, all_workers))),
      expert_parameters(experts_here * as_double(model::model_size(of).per_expert)),
      is_cpu(device.is_cpu()),
      fused(device.fused),
      recomputes_blocks(of.training.recompute == config::Recompute::kBlocks) {}

double LayoutShape::chunks_of_rows() const {
  const config::ExpertsConfig& experts = config.experts;
  const bool even = experts.traits().balanced || experts.training_capacity() > 0;
  if (expert_layers == 0 || workers == 1 || !even) return 1;
  const double rows = std::floor(expert_rows / as_double(experts.count));  // of a worker's for one
  return std::clamp(as_double(experts.chunks), 1.0, std::max(1.0, rows));
}

double LayoutShape::rows_of_logits() const {
  const double here = as_double(config.model.vocabulary) / as_double(shards);
  // As in kernels/cross_entropy.cpp: on a GPU equal chunks.
  if (!is_cpu) return tokens / std::ceil(tokens / std::max(64.0, (1 << 29) / here));
  return std::min(tokens, std::clamp((1 << 19) / here, 64.0, 8192.0));
}

namespace {

// Forward is a third of forward and backward.
double passes_of_blocks(const LayoutShape& s) { return s.recomputes_blocks ? 4.0 / 3 : 1; }

}  // namespace

// How often the hidden units of a feed-forward are read or written. ReLU is part of its product and
// undone by its result; any other activation is a pass of its own each way, a gated one over twice
// the columns, and keeps what it was given.
double kept_units(const LayoutShape& s) {
  if (s.config.model.activation == config::Activation::kRelu) return 1;
  return s.config.model.is_gated() ? 3 : 2;
}
double wide_passes(const LayoutShape& s) {
  const double of_relu = s.fused ? 6 : 12;
  if (s.config.model.activation == config::Activation::kRelu) return of_relu;
  return of_relu + (s.config.model.is_gated() ? 10 : 4);
}

Work attention_work(const LayoutShape& s) {
  const double matrices = 2 * s.width * (s.queries + s.keys) / as_double(s.shards);
  const double context = as_double(s.config.model.context);
  Work work;
  work.products = 6 * matrices * s.tokens;
  work.attention = 6 * s.queries / as_double(s.shards) * context * s.tokens;
  // Whole rows: the norm, the residual, what comes in and goes out; divided: the rest, of which 39
  // put the gradients of queries, keys and values together (docs/plan.md counts them).
  const double whole = s.fused ? 14 : 20, divided = s.fused ? 30 : 66;
  const double heads = (s.queries + s.keys) / 2;
  work.bytes = s.number * (s.tokens * (whole * s.width + divided * heads / as_double(s.shards)) +
                           kWeightPasses * matrices);
  work.operations = s.fused ? 16 : 32;
  const config::ModelConfig& m = s.config.model;
  if (m.positions == config::Positions::kRope || m.query_key_norm != config::QueryKeyNorm::kNone) {
    // Queries, keys and values are read and written once more each way, and read for a norm.
    work.bytes += s.number * s.tokens * 5 * (s.queries + 2 * s.keys) / as_double(s.shards);
    work.operations += 2;
  }
  return work * (s.blocks * passes_of_blocks(s));
}

namespace {

// Rows through a feed-forward, or through several that divide them.
struct RowsThrough {
  double rows, hidden;
  double narrow;      // passes over rows of the model's width
  double copies = 1;  // how many times a feed-forward's weights are read
};

Work work_of_rows(const LayoutShape& s, const RowsThrough& r) {
  const double matrices = s.matrices * s.width * r.hidden;
  return {.products = 6 * matrices * r.rows,
          .bytes = s.number * (r.rows * (r.narrow * s.width + wide_passes(s) * r.hidden) +
                               kWeightPasses * r.copies * matrices),
          .operations = s.fused ? 12.0 : 20.0};
}
double narrow_passes(const LayoutShape& s) { return s.fused ? 14 : 20; }

Work sublayer_work(const LayoutShape& s) {
  return work_of_rows(s, {.rows = s.expert_rows,
                          .hidden = s.expert_hidden,
                          .narrow = s.fused ? 12.0 : 22.0,
                          .copies = s.experts_here * s.chunks_of_rows()});
}

// Of the expert for all tokens.
Work shared_work(const LayoutShape& s) {
  if (s.shared_hidden == 0) return {};
  return work_of_rows(
      s, {.rows = s.own_tokens, .hidden = s.shared_hidden, .narrow = narrow_passes(s)});
}

// The paper's BASE layer, which gates where the expert is.
Work base_router_work(const LayoutShape& s) {
  const double experts = as_double(s.config.experts.count);
  Work work;
  work.products = 2 * s.width * experts * s.own_tokens;
  // Rows move eight times (four where no shuffle moves them); where nothing is fused a GPU's gate
  // makes copies in fp32, where all is, affinities alone do.
  const double moves = (s.shuffles() ? 16 : 8) - (s.fused ? 8 : 0);
  const double copies = s.is_cpu ? 8 : s.fused ? 5 : 68;
  work.bytes =
      s.number * s.width * s.expert_rows * (moves + copies) + 4 * experts * s.own_tokens * 4;
  work.operations = s.fused ? 45 : 80;
  return work;
}

Work gate_router_work(const LayoutShape& s) {
  const double experts = as_double(s.config.experts.count);
  Work work;
  work.products = 6 * s.width * experts * s.own_tokens;
  // The norm, then rows spread and mixed, forward and backward; logits and what is made of them.
  work.bytes = s.number * s.width * (s.own_tokens * (s.fused ? 8 : 20) + s.expert_rows * 6) +
               25 * 4 * experts * s.own_tokens;
  work.operations = s.fused ? 48 : 80;
  return work;
}

}  // namespace

Work feed_forward_work(const LayoutShape& s) {
  const Work once = work_of_rows(
      s, {.rows = s.tokens, .hidden = s.hidden / as_double(s.shards), .narrow = narrow_passes(s)});
  return once * (s.feed_forwards * passes_of_blocks(s));
}

Work routed_rows_work(const LayoutShape& s) {
  if (s.expert_layers == 0) return {};
  Work work = sublayer_work(s) * s.expert_sublayers;
  work.operations *= s.chunks_of_rows();
  return work;
}

Work experts_work(const LayoutShape& s) {
  if (s.expert_layers == 0) return {};
  Work work = s.config.experts.gates_at_experts() ? base_router_work(s) : gate_router_work(s);
  if (s.shuffles() && !s.config.experts.gates_at_experts())
    work.bytes += 8 * s.number * s.width * s.own_tokens;
  work += routed_rows_work(s);
  work += shared_work(s) * s.expert_sublayers;
  return work * s.expert_layers;
}

Work vocabulary_work(const LayoutShape& s) {
  const double rows = as_double(s.config.model.vocabulary) / as_double(s.shards);
  const double chunks = std::ceil(s.tokens / s.rows_of_logits());
  Work work;
  work.products = 6 * rows * s.width * s.tokens;
  const double of_logits = s.fused ? 5 : 6;
  work.bytes = s.number * (s.tokens * (of_logits * rows + (s.fused ? 14 : 16) * s.width) +
                           kWeightPasses * rows * s.width * chunks);
  work.operations = s.fused ? 10 + 3 * chunks : 12 + 6 * chunks;
  return work;
}

Work optimizer_work(const LayoutShape& s, const Device& device) {
  const double working = as_double(device.working), master = as_double(device.master);
  Work work;
  // Gradients are written, and read twice; weights and two moments read and written: of divided
  // state, those that are here.
  const double moved = model::kept_numbers(s.config, s.workers, s.parameters - s.expert_parameters,
                                           s.expert_parameters)
                           .masters;
  work.bytes = s.parameters * working +
               moved * (2 * working + 6 * master + (working == master ? 0 : working));
  work.operations = 10;
  if (s.config.optimizer.algorithm == config::Algorithm::kMuon) {
    // Whole matrices on every shard; of the experts those that are here.
    const model::ModelUpdates updates = model::count_updates(s.config);
    const double here = s.experts_here / std::max(1.0, as_double(s.config.experts.count));
    work.products = updates.shared.muon_products + here * updates.experts.muon_products;
    work.bytes += working * (updates.shared.muon_numbers + here * updates.experts.muon_numbers);
    work.operations += 100;  // kinds of matrices, each with 15 products and a few passes
  }
  return work;
}

MemoryParts memory_of(const LayoutShape& s, const Device& device) {
  const model::ParameterBytes each = model::bytes_of_parameter(device.working, device.master);
  const double shards = as_double(s.shards);
  MemoryParts memory;
  const double shared = s.parameters - s.expert_parameters;
  const model::KeptNumbers kept =
      model::kept_numbers(s.config, s.workers, shared, s.expert_parameters);
  memory.weights =
      s.parameters * as_double(each.weights - each.master) + kept.masters * as_double(each.master);
  memory.gradients = kept.gradients * as_double(each.gradients);
  memory.optimizer = kept.moments * as_double(device.master);
  // What autograd keeps: inputs of norms and products, queries to values and their mix, the active
  // units of feed-forwards; of a layer of experts also what goes in and out of its gate.
  const double turned =
      s.config.model.query_key_norm == config::QueryKeyNorm::kNone ? 0 : s.queries + 2 * s.keys;
  const double of_attention = 2 * s.width + (2 * s.queries + 2 * s.keys + turned) / shards;
  const double of_feed_forward = 2 * s.width + kept_units(s) * s.hidden / shards;
  // Recomputed blocks keep the stream and its last change; one at a time has the rest.
  const double of_blocks = s.recomputes_blocks
                               ? s.blocks * 2 * s.width + of_attention + of_feed_forward
                               : s.blocks * of_attention + s.feed_forwards * of_feed_forward;
  const double of_experts =
      s.expert_layers *
      (s.expert_sublayers *
           (s.expert_rows * (2 * s.width + kept_units(s) * s.expert_hidden) +
            (s.shared_hidden > 0 ? s.own_tokens * (2 * s.width + kept_units(s) * s.shared_hidden)
                                 : 0)) +
       2 * s.expert_rows * s.width);
  memory.activations = s.number * (s.tokens * (of_blocks + 2 * s.width) + of_experts);
  const double widest = std::max(s.tokens * (2 * s.hidden / shards + 3 * s.width),
                                 s.expert_rows * (2 * s.expert_hidden + 3 * s.width));
  // What came in chunks is put together once more.
  const double passages = s.chunks_of_rows() > 1 ? 3 : 2;
  const double messages = s.workers > 1 ? passages * s.expert_rows * s.width : 0;
  const double block =
      (2 * (s.queries + s.keys) + s.matrices * s.hidden) * s.width / shards;  // sums of gradients
  const bool chunks = s.config.training.shard_optimizer && s.replicas > 1;
  memory.buffers =
      s.number *
      (std::max(s.rows_of_logits() * as_double(s.config.model.vocabulary) / shards, widest) +
       messages + (s.replicas > 1 && !chunks ? block : 0));
  if (s.is_cpu)
    memory.buffers += kHeapShare * (memory.activations + memory.buffers) + kCpuLibraries;
  // Chunks of gradients that are being summed: MPI has two of each beside the gradients, NCCL one.
  if (chunks) memory.buffers += (s.is_cpu ? 2 : 1) * std::min(kChunksUnderWay, s.number * shared);
  return memory;
}

bool fits(const MemoryParts& memory, const Device& device) {
  return device.memory == 0 || memory.total() <= kUsableMemory * device.memory;
}

}  // namespace ballast::plan
