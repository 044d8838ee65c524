// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/trainer.h"

#include <torch/csrc/autograd/autograd.h>

#include <chrono>

#include "ballast/inference/batch_tensors.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/training/schedule.h"

namespace ballast {

using at::Tensor;

Trainer::Trainer(const Config& config, const ComputePlace& place,
                 std::vector<WeightedSource> sources)
    : config_(config),
      place_(place),
      model_(config.model, table_),
      optimizer_(table_, config.optimizer),
      batches_(std::move(sources), {.context = config.model.context,
                                    .global_batch = config.training.batch,
                                    .micro_steps = config.training.micro_steps,
                                    .seed = static_cast<uint64_t>(config.training.seed)}),
      state_(config.training) {
  table_.allocate({.device = place.device, .working = place.working, .master = place.master});
  table_.initialize(static_cast<uint64_t>(config.training.seed));
}

void Trainer::resume(const Checkpoint& checkpoint) {
  load_training(checkpoint, table_, state_);
  prefetcher_.reset();
}

void Trainer::start_reading() {
  const auto first = static_cast<uint64_t>(state_.step);
  const auto micro_steps = static_cast<uint64_t>(config_.training.micro_steps);
  const uint64_t count = (static_cast<uint64_t>(config_.training.steps) - first) * micro_steps;
  prefetcher_ = std::make_unique<Prefetcher>(
      [this, first, micro_steps](uint64_t i) {
        return batches_.at(first + i / micro_steps, static_cast<int64_t>(i % micro_steps), 0, 1);
      },
      count);
}

double Trainer::add_gradients() {
  // The loss is one number: the mean over all targets of the step, whatever micro-step they are in.
  const int64_t targets = config_.training.batch * config_.model.context;
  Tensor sum;
  for (int64_t micro = 0; micro < config_.training.micro_steps; ++micro) {
    const Batch batch = prefetcher_->next();
    const BatchTensors tensors = to_device(batch, place_.device);
    const Tensor hidden = model_.forward(tensors.inputs);  // [B * S, D]
    const auto [losses, gradient] = next_token_losses_and_gradient(
        hidden, model_.token_embedding(), tensors.targets, 1.0 / static_cast<double>(targets));
    torch::autograd::backward({hidden}, {gradient});
    const Tensor part = losses.sum(at::kDouble);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum.item<double>() / static_cast<double>(targets);
}

StepStats Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  if (prefetcher_ == nullptr) start_reading();
  StepStats stats;
  optimizer_.clear_gradients();
  stats.loss = add_gradients();
  const Tensor norm = optimizer_.gradient_norm();
  stats.gradient_norm = norm.item<double>();
  stats.learning_rate = learning_rate_at(state_.step, config_.training.steps, config_.optimizer);
  stats.skipped = state_.guard.judge(stats.loss, stats.gradient_norm);
  if (stats.skipped.empty()) optimizer_.update(++state_.updates, stats.learning_rate, norm);
  stats.tokens = config_.training.batch * config_.model.context;
  state_.tokens += stats.tokens;
  stats.step = ++state_.step;
  stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  state_.seconds += stats.seconds;
  return stats;
}

}  // namespace ballast
