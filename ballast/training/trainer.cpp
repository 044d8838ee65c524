// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/trainer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ballast/kernels/gradient_scale.h"
#include "ballast/training/divided_state.h"
#include "ballast/training/schedule.h"

namespace ballast::training {

using at::Tensor;
using parameters::Owner;

bool is_logged(int64_t step, const config::TrainingConfig& config) {
  return step % config.log_every == 0 || step == 1 || step == config.steps;
}

namespace {

// Why a step cannot be one graph; empty: it can.
std::string why_not_recorded(const config::Config& config, const model::ComputePlace& place,
                             const comm::WorkerGrid& grid) {
  if (place.device.is_cpu()) return "graphs are for GPUs";
  if (!config.training.graph) return "training.graph is off";
  if (!grid.everyone().can_record()) return "tensors go from worker to worker through host memory";
  const config::ExpertsConfig& experts = config.experts;
  if (experts.layers > 0 && !experts.traits().balanced && experts.training_capacity() == 0)
    return "experts without a capacity get as many tokens as the step finds";
  return "";
}

}  // namespace

Trainer::Trainer(const config::Config& config, const model::ComputePlace& place,
                 std::vector<batches::WeightedSource> sources, const comm::WorkerGrid& grid)
    : config_(config),
      place_(place),
      grid_(grid),
      model_(config, table_, grid),
      batches_(std::move(sources), {.context = config.model.context,
                                    .global_batch = config.training.batch,
                                    .micro_steps = config.training.micro_steps,
                                    .seed = static_cast<uint64_t>(config.training.seed)}),
      state_(config.training),
      step_batches_(place.device, config.training.micro_steps),
      inputs_(place.device),
      graphs_(why_not_recorded(config, place, grid), grid.everyone()),
      clock_(place.device) {
  table_.freeze(config.training.freeze);
  table_.allocate({.device = place.device,
                   .working = place.working,
                   .master = place.master,
                   .muon = config.optimizer.algorithm == config::Algorithm::kMuon,
                   .average = config.optimizer.average > 0,
                   .writes_gradients = place.device.is_cuda(),
                   .divisions = config.training.shard_optimizer
                                    ? state_divisions(grid_)
                                    : std::vector<parameters::StateDivision>(),
                   .chunk_bytes = GradientReducer::kBucketBytes});
  table_.initialize(static_cast<uint64_t>(config.training.seed));
  share_initial_weights();
  optimizer_.emplace(table_, config.optimizer, &grid_.shards());
  reducer_.emplace(table_, config.model.layers, grid_);
}

// Libraries may round differently on another kind of processor.
void Trainer::share_initial_weights() {
  const auto share = [&](comm::Communicator& group, Owner first, Owner last) {
    for (const parameters::FlatRange& range : table_.ranges(first, last)) {
      const bool is_whole = table_.is_whole(table_.master());
      for (const auto& common : is_whole ? std::vector{range} : table_.held().common(range))
        group.broadcast(table_.part(table_.master(), common), 0, {"initial weights"});
    }
  };
  share(grid_.replicas(), Owner::kShard, Owner::kShard);
  share(workers(), Owner::kShared, Owner::kRouter);
  table_.copy_master_to_working();
  if (!table_.is_whole(table_.master())) gather_weights(table_, grid_);
}

void Trainer::resume(const checkpoint::Checkpoint& checkpoint) {
  load_training(checkpoint, model_, table_, state_);
  step_batches_.stop();
}

InitializedFrom Trainer::initialize_from(const checkpoint::Checkpoint& checkpoint,
                                         std::optional<Upcycling> upcycling) {
  const InitializedFrom result = training::initialize_from(checkpoint, config_.experts, table_);
  if (!upcycling) return result;
  upcycling->seed = static_cast<uint64_t>(config_.training.seed);
  copy_feed_forwards(checkpoint, config_, *upcycling, table_);
  return result;
}

void Trainer::start_reading() {
  const auto first = static_cast<uint64_t>(state_.step);
  const auto micro_steps = static_cast<uint64_t>(config_.training.micro_steps);
  const uint64_t count = (static_cast<uint64_t>(config_.training.steps) - first) * micro_steps;
  step_batches_.start(
      [this, first, micro_steps](uint64_t i) {
        return batches_.at(first + i / micro_steps, static_cast<int64_t>(i % micro_steps),
                           grid_.replica(), grid_.num_replicas());
      },
      count);
}

experts::Routing Trainer::routing(int64_t micro_step) {
  return {.mode = experts::RoutingMode::kBalanced,
          .training = experts::TrainingRoute{.groups = config_.experts.groups,
                                             .shuffle = config_.experts.shuffle,
                                             .seed = static_cast<uint64_t>(config_.training.seed),
                                             .step = static_cast<uint64_t>(state_.step),
                                             .micro_step = static_cast<uint64_t>(micro_step),
                                             .micro_steps = config_.training.micro_steps},
          .tape = tape_,
          .inputs = &inputs_,
          .watch = watch_};
}

void Trainer::use_tape(experts::RouteTape* tape) {
  tape_ = tape;
  graphs_.give_up("assignments are kept or repeated");
}

Tensor Trainer::add_gradients(const std::vector<loading::BatchTensors>& batches) {
  // The loss is one number: the mean over all targets of the step, whatever micro-step and worker
  // they are in.
  const int64_t targets = config_.training.batch * config_.model.context;
  Tensor sum;
  table_.forget_gradients();
  for (int64_t micro = 0; micro < config_.training.micro_steps; ++micro) {
    const loading::BatchTensors& batch = batches[static_cast<size_t>(micro)];
    const bool is_last = micro + 1 == config_.training.micro_steps;
    const Tensor hidden = model_.forward(batch.inputs, routing(micro),
                                         is_last ? &*reducer_ : nullptr);  // [B * S, D]
    const auto [losses, gradient] =
        model_.losses_and_gradient(hidden, batch.targets, 1.0 / static_cast<double>(targets));
    torch::autograd::backward({hidden}, {gradient});
    enter(step::StepPart::kOther);
    const Tensor part = losses.sum(at::kDouble);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  table_.settle_gradients();
  return sum;
}

void Trainer::average_prices(const std::vector<LayerStats>& layers) {
  // The plain average of the first steps, then an exponential one: nothing to correct for.
  const double share =
      std::max(1 - config_.experts.price_decay, 1 / static_cast<double>(state_.updates));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].prices.defined())
      model_.expert_layers()[i]->router().prices()->move_towards(layers[i].prices, share);
  }
}

void Trainer::enter(step::StepPart part) const {
  if (watch_ != nullptr) watch_->switch_to(part);
}

StepSums Trainer::sum_up(const Tensor& loss_sum) {
  if (workers().size() > 1) enter(step::StepPart::kCommunication);
  reducer_->finish();
  enter(step::StepPart::kOptimizer);
  return sum_over_workers(
      {loss_sum, optimizer_->gradient_norm(Owner::kShard),
       optimizer_->gradient_norm(Owner::kShared, Owner::kRouter),
       optimizer_->gradient_norm(Owner::kExpert), optimizer_->divided_gradient_norm()},
      model_, watch_);
}

// What the optimizer wants to know, and the largest norm that is no spike.
Tensor Trainer::numbers_of_step() const {
  const double rate = learning_rate_at(state_.step, config_.training.steps, config_.optimizer);
  return at::cat({optimizer_->numbers(state_.updates + 1, rate),
                  at::full({1}, state_.guard.limit(), at::kDouble)});
}

void Trainer::update_weights(StepSums& sums) {
  const Tensor numbers = inputs_.take([this](uint64_t) { return numbers_of_step(); });
  const kernels::ClipRule rule{.clip_norm = config_.optimizer.clip_norm,
                               .over_all = config_.optimizer.clip_over == config::ClipOver::kAll};
  const auto [scale, norm] = kernels::gradient_scale(
      sums.sums, numbers.narrow(0, Optimizer::kNumbers, 1), rule, place_.master);
  optimizer_->update(numbers, scale);
  if (!table_.held().is_whole()) {
    enter(step::StepPart::kCommunication);
    gather_weights(table_, grid_);
  }
  tell_host(sums, norm);
}

StepSums Trainer::compute(const std::vector<loading::BatchTensors>& batches) {
  // What a step left that failed, or that was recorded and not run, is not this one's.
  for (const auto& layer : model_.expert_layers()) layer->router().take_stats();
  reducer_->begin();
  const bool is_clocked = watch_ == &clock_;
  if (is_clocked) clock_.start();
  StepSums sums = sum_up(add_gradients(batches));
  update_weights(sums);
  if (is_clocked) {
    clock_.stop();
  } else {
    enter(step::StepPart::kOther);
  }
  return sums;
}

// What the device decided, by the same numbers.
void Trainer::judge(StepStats& stats, const StepTotals& totals) {
  stats.tokens = config_.training.batch * config_.model.context;
  stats.loss = totals.loss_sum / static_cast<double>(stats.tokens);
  stats.expert_gradient_norm = totals.expert_norm;
  stats.gradient_norm = totals.clipped_by;
  stats.learning_rate = learning_rate_at(state_.step, config_.training.steps, config_.optimizer);
  // An expert's gradient that is not finite stops the step on all workers, not on its own alone.
  stats.skipped = state_.guard.judge(
      stats.loss, std::isfinite(totals.expert_norm) ? stats.gradient_norm : totals.expert_norm);
  if (!stats.skipped.empty()) return;
  ++state_.updates;
  average_prices(totals.layers);
}

StepStats Trainer::step(step::StepWatch* watch, const std::function<void()>& meanwhile) {
  if (place_.device.is_cpu() && meanwhile) meanwhile();
  const auto begin = std::chrono::steady_clock::now();
  if (!step_batches_.is_started()) start_reading();
  for (const auto& layer : model_.expert_layers())  // what validation and samples took is not ours
    layer->take_exchange_seconds();
  const std::vector<loading::BatchTensors>& batches = step_batches_.next();
  const bool is_clocked = watch == nullptr && is_logged(state_.step + 1, config_.training);
  watch_ = is_clocked ? &clock_ : watch;
  const StepKind kind = watch != nullptr ? StepKind::kWatched
                        : is_clocked     ? StepKind::kClocked
                                         : StepKind::kUsual;
  const StepSums& sums = graphs_.run(kind, static_cast<uint64_t>(state_.step), inputs_,
                                     [&] { return compute(batches); });
  watch_ = nullptr;
  step_batches_.prepare();
  if (!place_.device.is_cpu() && meanwhile) meanwhile();
  StepTotals totals = read_totals(sums, model_);
  StepStats stats;
  judge(stats, totals);
  if (is_clocked) stats.parts = clock_.read();
  stats.layers = std::move(totals.layers);
  state_.tokens += stats.tokens;
  stats.step = ++state_.step;
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  state_.seconds += stats.seconds;
  return stats;
}

}  // namespace ballast::training
