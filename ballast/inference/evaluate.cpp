// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "ballast/inference/any_worker.h"
#include "ballast/inference/batch_tensors.h"
#include "ballast/inference/window_rounds.h"

namespace ballast {

namespace {

// 1 for tokens of the text, [rows * context]: up to a row's last target. What follows fills it up.
std::vector<uint8_t> tokens_of_text(const Batch& batch) {
  std::vector<uint8_t> real(batch.targets.size());
  const auto context = static_cast<size_t>(batch.context);
  for (size_t row = 0; row < real.size(); row += context) {
    size_t end = context;
    while (end > 0 && batch.targets[row + end - 1] < 0) --end;
    std::fill_n(real.begin() + static_cast<ptrdiff_t>(row), end, uint8_t{1});
  }
  return real;
}

at::Tensor to_mask(const std::vector<uint8_t>& values, at::Device device) {
  const at::Tensor mask = at::empty({std::ssize(values)}, at::kBool);
  std::ranges::copy(values, static_cast<uint8_t*>(mask.mutable_data_ptr()));
  return mask.to(device);
}

// Counts what the layers of experts do with the inputs of targets that count.
class ExpertCounter {
 public:
  ExpertCounter(const LanguageModel& model, const TokenSource& source) {
    for (const auto& layer : model.expert_layers()) {
      uses.emplace_back(layer->experts(), model.config().vocabulary, source.domains());
      if (layer->experts_of_token() > 1) second_uses.push_back(uses.back());
      places_.push_back(layer->place());
    }
  }

  // A routing that counts the tokens of `batch`, which must outlive it.
  Routing watching(RoutingMode mode, const Batch& batch, at::Device device) {
    if (uses.empty()) return {.mode = mode};
    std::vector<uint8_t> counted;
    for (const int64_t target : batch.targets) counted.push_back(target >= 0 ? 1 : 0);
    return {.mode = mode,
            .counted = mode == RoutingMode::kBalanced ? to_mask(tokens_of_text(batch), device)
                                                      : at::Tensor(),
            .seen = [this, &batch, counted](const SeenRoute& route) {
              const auto place =
                  static_cast<size_t>(std::ranges::find(places_, route.layer) - places_.begin());
              count(batch, counted, route.first_token, route.expert_of_token, uses[place]);
              if (route.second_of_token.defined())
                count(batch, counted, route.first_token, route.second_of_token, second_uses[place]);
            }};
  }

  void sum_over(Communicator& workers) {
    for (std::vector<ExpertUse>* list : {&uses, &second_uses}) {
      for (ExpertUse& use : *list) {
        const std::span<double> counts = use.counts();
        const at::Tensor all =
            at::from_blob(counts.data(), {std::ssize(counts)}, at::TensorOptions(at::kDouble));
        workers.all_reduce(all, Reduction::kSum, {"expert use"});
      }
    }
  }

  std::vector<ExpertUse> uses, second_uses;

 private:
  // A shard sees its part of the tokens, from `first` on.
  static void count(const Batch& batch, std::span<const uint8_t> counted, int64_t first,
                    const at::Tensor& expert_of_token, ExpertUse& use) {
    const at::Tensor expert = expert_of_token.to(at::kCPU, at::kInt);
    const auto size = static_cast<size_t>(expert.numel());
    const auto of_these = [&](auto of_batch) {
      return of_batch.empty() ? of_batch : of_batch.subspan(static_cast<size_t>(first), size);
    };
    use.add(of_these(std::span(batch.inputs)), of_these(std::span(batch.domains)),
            {expert.const_data_ptr<int32_t>(), size}, of_these(counted));
  }

  std::vector<int64_t> places_;
};

}  // namespace

Evaluation evaluate(const LanguageModel& model, const ComputePlace& place,
                    const EvalWindows& windows, const EvaluationOptions& options,
                    const std::function<bool(uint64_t)>& advance) {
  const at::NoGradGuard no_grad;
  Communicator& workers = model.workers();
  const WindowRounds rounds(windows, {options.batch, options.max_windows, options.together},
                            {model.grid().replica(), model.grid().num_replicas()});
  ExpertCounter experts(model, windows.source());
  double sum = 0, tokens = 0;
  for (uint64_t round = 0; round < rounds.size(); ++round) {
    const Batch read = rounds.take(round).batch;
    const BatchTensors tensors = to_device(read, place.device);
    const at::Tensor hidden =
        model.forward(tensors.inputs, experts.watching(options.routing, read, place.device));
    sum += model.losses(hidden, tensors.targets).sum(at::kDouble).item<double>();
    tokens +=
        static_cast<double>(std::ranges::count_if(read.targets, [](int64_t t) { return t >= 0; }));
    if (advance && on_any_worker(workers, !advance(rounds.windows_of(round)), {"stop evaluation"}))
      break;
  }
  const at::Tensor totals = at::tensor({sum, tokens}, at::kDouble);
  if (model.grid().shard() != 0) totals.zero_();  // its shards have what a replica has alike
  workers.all_reduce(totals, Reduction::kSum, {"evaluation"});
  sum = totals[0].item<double>();
  experts.sum_over(workers);
  Evaluation result;
  result.experts = std::move(experts.uses);
  result.second_experts = std::move(experts.second_uses);
  result.tokens = static_cast<uint64_t>(totals[1].item<double>());
  result.loss = result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0;
  result.perplexity = std::exp(result.loss);
  const TokenSourceInfo& source = windows.source().info();
  if (source.source_bytes && result.tokens == windows.predictions()) {
    result.bits_per_byte = sum / std::numbers::ln2 / static_cast<double>(*source.source_bytes);
  }
  return result;
}

}  // namespace ballast
