// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/language_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ballast/comm/collectives.h"
#include "ballast/model/initialization.h"
#include "ballast/model/shard_layers.h"

namespace ballast::model {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

namespace {

std::string name_of(int64_t block) { return "block." + std::to_string(block); }

}  // namespace

Block::Block(const config::ModelConfig& config, int64_t number, FeedForwardKind kind,
             parameters::ParameterTable& table, comm::Communicator& shards)
    : attention_norm(config, name_of(number) + ".attention.norm", table),
      attention(config, number, table, shards),
      number(number) {
  if (kind == FeedForwardKind::kDense) feed_forward.emplace(config, number, table, shards);
}

void Block::forward(ResidualStream& x, const BlockPass& pass) const {
  step::StepWatch* const watch = pass.watch;
  // A block that backward computes again finds the watch in the part that follows it.
  if (watch != nullptr) watch->switch_to(step::StepPart::kAttention);
  // Where nothing is left out, the change's gradient is that of the stream.
  const BiasGradient sums = pass.dropout.is_on() ? BiasGradient::kHere : BiasGradient::kByStream;
  const auto bias = [&](const kernels::Parameter& of_change) -> const kernels::Parameter& {
    return pass.dropout.is_on() ? kernels::no_parameter() : of_change;
  };
  x.add(pass.dropout.after_attention(
            attention.forward(attention_norm(x), pass.sequences, watch, sums), number),
        bias(attention.out_bias()));
  if (!feed_forward) return;
  x.pass([&](const Tensor& given) {
    return step::pass_into(step::StepPart::kFeedForward, given, watch);
  });
  x.add(pass.dropout.after_feed_forward(feed_forward->forward(x, watch, sums), number),
        bias(feed_forward->down_bias()));
}

namespace {

// Returns x. On the way back it tells that everything after it is done.
struct ProgressMark : torch::autograd::Function<ProgressMark> {
  static Tensor forward(AutogradContext* context, const Tensor& x, BackwardProgress* progress,
                        int64_t block) {
    context->saved_data["progress"] = reinterpret_cast<int64_t>(progress);
    context->saved_data["block"] = block;
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    reinterpret_cast<BackwardProgress*>(context->saved_data["progress"].toInt())
        ->reached(context->saved_data["block"].toInt());
    return {dy[0], {}, {}};
  }
};

}  // namespace

LanguageModel::LanguageModel(const config::Config& config, parameters::ParameterTable& table,
                             const comm::WorkerGrid& grid)
    : config_(config.model),
      recomputes_blocks_(config.training.recompute == config::Recompute::kBlocks),
      grid_(grid),
      vocabulary_(config_, table, grid_.shards()),
      position_embedding_(
          config_.positions == config::Positions::kLearned
              ? table.declare(matrix("position_embedding", config_.context, config_.width))
              : kernels::no_parameter()),
      blocks_([&] {
        const std::vector<int64_t> places = config.experts.places(config_.layers);
        std::vector<std::unique_ptr<Block>> blocks;
        for (int64_t i = 0; i < config_.layers; ++i) {
          const bool replaced = config.experts.replaces_feed_forwards() &&
                                std::ranges::find(places, i + 1) != places.end();
          table.declare_in_block(i);
          blocks.push_back(std::make_unique<Block>(
              config_, i, replaced ? FeedForwardKind::kExperts : FeedForwardKind::kDense, table,
              grid_.shards()));
        }
        table.declare_in_block(std::nullopt);
        return blocks;
      }()),
      expert_layers_([&] {
        std::vector<std::unique_ptr<experts::ExpertLayer>> layers;
        const auto hops = config.experts.layers > 0 && config.experts.hops > 1
                              ? comm::hops_between_machines(grid_.everyone())
                              : nullptr;
        for (const int64_t place : config.experts.places(config_.layers))
          layers.push_back(
              std::make_unique<experts::ExpertLayer>(config, place, table, grid_.everyone(), hops));
        return layers;
      }()),
      output_norm_(config_, "output_norm", table) {}

const RopeTables& LanguageModel::rope(const Tensor& like) const {
  if (config_.positions == config::Positions::kRope &&
      (!rope_.cosines.defined() || rope_.cosines.device() != like.device())) {
    const bool is_double = like.scalar_type() == at::kDouble;
    rope_ = rope_tables(config_, like.options().dtype(is_double ? at::kDouble : at::kFloat));
  }
  return rope_;
}

namespace {

// Tokens that see each other have the same number: how many documents ended before them in their
// sequence.  tokens [B, S] -> [B, S]
Tensor documents_of(const Tensor& tokens, int64_t separator) {
  const Tensor ends = tokens.eq(separator).to(at::kLong);
  return ends.cumsum(1) - ends;
}

}  // namespace

BlockPass LanguageModel::pass_of(const Tensor& tokens, const Tensor& embedded,
                                 const experts::Routing& routing) const {
  BlockPass pass;
  pass.sequences.rows = tokens.size(0);
  pass.watch = routing.watch;
  const RopeTables& all = rope(embedded);
  if (all.cosines.defined()) {
    const int64_t length = tokens.size(1);
    pass.sequences.rope = {all.cosines.narrow(0, 0, length), all.sines.narrow(0, 0, length)};
  }
  if (config_.document_mask) pass.sequences.documents = documents_of(tokens, config_.separator);
  if (config_.dropout > 0 && routing.training) {
    pass.dropout = Dropout({.part = config_.dropout,
                            .first_row = grid_.replica() * embedded.size(0),
                            .device = embedded.device()},
                           routing);
  }
  return pass;
}

bool LanguageModel::is_read_ahead(int64_t block) const {
  return std::ranges::any_of(expert_layers_, [&](const auto& layer) {
    return layer->place() == block + 1 && layer->looks_ahead();
  });
}

void LanguageModel::expert_layers_after(int64_t blocks, ResidualStream& x, const Tensor& earlier,
                                        const experts::Routing& routing) const {
  for (const auto& layer : expert_layers_) {
    if (layer->place() != blocks) continue;
    const Tensor entering = step::pass_into(step::StepPart::kExperts, x.value(), routing.watch);
    x = ResidualStream(through(*layer, entering, earlier, routing));
  }
}

Tensor LanguageModel::through(experts::ExpertLayer& layer, const Tensor& x, const Tensor& earlier,
                              const experts::Routing& routing) const {
  comm::Communicator& shards = grid_.shards();
  if (shards.size() == 1) return layer.forward(x, routing, earlier);
  const comm::Label label{"tokens of shards", static_cast<int>(layer.place())};
  const comm::RowsOfWorker rows = comm::divide_rows(x.size(0), shards.size());
  experts::Routing own = routing;
  if (own.counted.defined()) own.counted = comm::own_rows(shards, own.counted, rows, label);
  if (routing.seen) {
    own.seen = [&](experts::SeenRoute route) {
      route.first_token = comm::first_own_row(shards, rows);
      routing.seen(route);
    };
  }
  const auto own_of = [&](const Tensor& all) {
    return all.defined() ? comm::own_rows(shards, all, rows, label) : all;
  };
  return comm::gather_rows(shards, layer.forward(own_of(x), own, own_of(earlier)), rows, label);
}

Tensor LanguageModel::embed_at(const Tensor& tokens, const Tensor& positions) const {
  const Tensor graph_root = at::empty({0}).requires_grad_(at::GradMode::is_enabled());
  if (!position_embedding_.value.defined())
    return vocabulary_.embed(tokens.reshape({-1}), graph_root);
  return vocabulary_.embed(tokens.reshape({-1}), positions.reshape({-1}), position_embedding_,
                           graph_root);
}

Tensor LanguageModel::forward(const Tensor& tokens, const experts::Routing& routing_of_pass,
                              BackwardProgress* progress) const {
  TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) <= config_.context,
              "LanguageModel: want tokens [B, S] with S <= ", config_.context, ", got ",
              tokens.sizes());
  std::vector<int64_t> places;
  for (const auto& layer : expert_layers_) places.push_back(layer->place());
  experts::PassShuffles shuffles(std::move(places));
  experts::Routing routing = routing_of_pass;
  routing.shuffles = &shuffles;
  step::StepWatch* const watch = routing.watch;
  if (watch != nullptr) watch->switch_to(step::StepPart::kVocabulary);
  const Tensor embedded =
      embed_at(tokens, at::arange(tokens.size(1), tokens.options()));  // [B * S, D]
  const BlockPass pass = pass_of(tokens, embedded, routing);
  ResidualStream x(pass.dropout.after_embedding(embedded));
  const auto enter = [&](step::StepPart part) {
    x.pass([&](const Tensor& given) { return step::pass_into(part, given, watch); });
  };
  expert_layers_after(0, x, {}, routing);
  for (int64_t i = 0; i < config_.layers; ++i) {
    const Block& block = *blocks_[static_cast<size_t>(i)];
    if (progress != nullptr)
      x.pass([&](const Tensor& given) { return ProgressMark::apply(given, progress, i); });
    enter(step::StepPart::kAttention);
    if (is_read_ahead(i)) x.keep_next();  // the block begins with a norm
    const auto through_block = [&block, pass](ResidualStream& stream) {
      block.forward(stream, pass);
    };
    recomputes_blocks_ ? x.pass_recomputed(through_block) : through_block(x);
    expert_layers_after(i + 1, x, x.take_kept(), routing);
  }
  enter(step::StepPart::kVocabulary);
  return output_norm_(x);
}

Tensor LanguageModel::forward(const Tensor& tokens, const experts::Routing& routing,
                              KeyValueCache& cache) const {
  const Tensor positions =
      cache.cached().unsqueeze(1) + at::arange(tokens.size(1), tokens.options());  // [B, N]
  ResidualStream x(embed_at(tokens, positions));
  RopeTables turned = rope(x.value());  // of each token
  if (turned.cosines.defined()) {
    const Tensor of = positions.reshape({-1});
    turned = {turned.cosines.index_select(0, of), turned.sines.index_select(0, of)};
  }
  expert_layers_after(0, x, {}, routing);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = *blocks_[i];
    if (is_read_ahead(static_cast<int64_t>(i))) x.keep_next();
    x.add(block.attention.forward(block.attention_norm(x), cache, cache.layers()[i], turned));
    if (block.feed_forward) x.add(block.feed_forward->forward(x));
    expert_layers_after(static_cast<int64_t>(i) + 1, x, x.take_kept(), routing);
  }
  cache.advance(tokens.size(1));
  return output_norm_(x);
}

}  // namespace ballast::model
