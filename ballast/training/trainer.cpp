// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/trainer.h"

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ballast/inference/batch_tensors.h"
#include "ballast/training/schedule.h"

namespace ballast {

using at::Tensor;

bool is_logged(int64_t step, const TrainingConfig& config) {
  return step % config.log_every == 0 || step == 1 || step == config.steps;
}

Trainer::Trainer(const Config& config, const ComputePlace& place,
                 std::vector<WeightedSource> sources, const WorkerGrid& grid)
    : config_(config),
      place_(place),
      grid_(grid),
      model_(config, table_, grid),
      optimizer_(table_, config.optimizer),
      batches_(std::move(sources), {.context = config.model.context,
                                    .global_batch = config.training.batch,
                                    .micro_steps = config.training.micro_steps,
                                    .seed = static_cast<uint64_t>(config.training.seed)}),
      state_(config.training),
      clock_(place.device) {
  table_.allocate({.device = place.device, .working = place.working, .master = place.master});
  table_.initialize(static_cast<uint64_t>(config.training.seed));
  share_initial_weights();
  reducer_.emplace(table_, config.model.layers, grid_);
}

// Libraries may round differently on another kind of processor.
void Trainer::share_initial_weights() {
  const auto part = [&](Owner first, Owner last) {
    return table_.range(first, last).of(table_.master());
  };
  grid_.replicas().broadcast(part(Owner::kShard, Owner::kShard), 0, {"initial weights"});
  workers().broadcast(part(Owner::kShared, Owner::kRouter), 0, {"initial weights"});
  table_.copy_master_to_working();
}

void Trainer::resume(const Checkpoint& checkpoint) {
  load_training(checkpoint, model_, table_, state_);
  prefetcher_.reset();
}

InitializedFrom Trainer::initialize_from(const Checkpoint& checkpoint) {
  return ballast::initialize_from(checkpoint, config_.experts, table_);
}

void Trainer::start_reading() {
  const auto first = static_cast<uint64_t>(state_.step);
  const auto micro_steps = static_cast<uint64_t>(config_.training.micro_steps);
  const uint64_t count = (static_cast<uint64_t>(config_.training.steps) - first) * micro_steps;
  prefetcher_ = std::make_unique<Prefetcher>(
      [this, first, micro_steps](uint64_t i) {
        return batches_.at(first + i / micro_steps, static_cast<int64_t>(i % micro_steps),
                           grid_.replica(), grid_.num_replicas());
      },
      count);
}

Routing Trainer::routing(int64_t micro_step) const {
  return {.mode = RoutingMode::kBalanced,
          .training = TrainingRoute{.groups = config_.experts.groups,
                                    .shuffle = config_.experts.shuffle,
                                    .seed = static_cast<uint64_t>(config_.training.seed),
                                    .step = static_cast<uint64_t>(state_.step),
                                    .micro_step = static_cast<uint64_t>(micro_step),
                                    .micro_steps = config_.training.micro_steps},
          .tape = tape_,
          .watch = watch_};
}

Tensor Trainer::add_gradients() {
  // The loss is one number: the mean over all targets of the step, whatever micro-step and worker
  // they are in.
  const int64_t targets = config_.training.batch * config_.model.context;
  Tensor sum;
  for (int64_t micro = 0; micro < config_.training.micro_steps; ++micro) {
    const Batch batch = prefetcher_->next();
    const BatchTensors tensors = to_device(batch, place_.device);
    const bool is_last = micro + 1 == config_.training.micro_steps;
    const Tensor hidden = model_.forward(tensors.inputs, routing(micro),
                                         is_last ? &*reducer_ : nullptr);  // [B * S, D]
    const auto [losses, gradient] =
        model_.losses_and_gradient(hidden, tensors.targets, 1.0 / static_cast<double>(targets));
    torch::autograd::backward({hidden}, {gradient});
    enter(StepPart::kOther);
    const Tensor part = losses.sum(at::kDouble);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

void Trainer::average_prices(const std::vector<LayerStats>& layers) {
  // The plain average of the first steps, then an exponential one: nothing to correct for.
  const double share =
      std::max(1 - config_.experts.price_decay, 1 / static_cast<double>(state_.updates));
  for (size_t i = 0; i < layers.size(); ++i) {
    Router& router = model_.expert_layers()[i]->router();
    if (layers[i].prices.defined())
      router.set_prices(router.prices() + share * (layers[i].prices - router.prices()));
  }
}

void Trainer::enter(StepPart part) const {
  if (watch_ != nullptr) watch_->switch_to(part);
}

StepTotals Trainer::totals_of_step(const Tensor& loss_sum) {
  if (workers().size() > 1) enter(StepPart::kCommunication);
  reducer_->finish();
  enter(StepPart::kOptimizer);
  return sum_over_workers({loss_sum, optimizer_.gradient_norm(Owner::kShard),
                           optimizer_.gradient_norm(Owner::kShared, Owner::kRouter),
                           optimizer_.gradient_norm(Owner::kExpert)},
                          model_, watch_);
}

void Trainer::update_weights(StepStats& stats, const StepTotals& totals) {
  stats.expert_gradient_norm = totals.expert_norm;
  stats.gradient_norm = config_.optimizer.clip_over == "all"
                            ? std::hypot(totals.shared_norm, totals.expert_norm)
                            : totals.shared_norm;
  stats.learning_rate = learning_rate_at(state_.step, config_.training.steps, config_.optimizer);
  // An expert's gradient that is not finite stops the step on all workers, not on its own alone.
  stats.skipped = state_.guard.judge(
      stats.loss, std::isfinite(totals.expert_norm) ? stats.gradient_norm : totals.expert_norm);
  if (!stats.skipped.empty()) return;
  optimizer_.update(++state_.updates, stats.learning_rate, stats.gradient_norm);
  average_prices(totals.layers);
}

StepStats Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  if (prefetcher_ == nullptr) start_reading();
  for (const auto& layer : model_.expert_layers())  // what validation and samples took is not ours
    workers().take_all_to_all_seconds(static_cast<int>(layer->place()));
  StepStats stats;
  watch_ = is_logged(state_.step + 1, config_.training) ? &clock_ : nullptr;
  if (watch_ != nullptr) clock_.start();
  enter(StepPart::kOptimizer);
  optimizer_.clear_gradients();
  enter(StepPart::kOther);
  StepTotals totals = totals_of_step(add_gradients());
  stats.tokens = config_.training.batch * config_.model.context;
  stats.loss = totals.loss_sum / static_cast<double>(stats.tokens);
  update_weights(stats, totals);
  if (watch_ != nullptr) stats.parts = clock_.stop();
  watch_ = nullptr;
  stats.layers = std::move(totals.layers);
  state_.tokens += stats.tokens;
  stats.step = ++state_.step;
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  state_.seconds += stats.seconds;
  return stats;
}

}  // namespace ballast
