// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <utility>

#include "ballast/comm/any_worker.h"
#include "ballast/inference/score_moments.h"
#include "ballast/inference/window_rounds.h"
#include "ballast/loading/batch_tensors.h"
#include "ballast/system/progress.h"

namespace ballast::inference {

namespace {

// 1 for tokens of the text, [rows * context]: up to a row's last target. What follows fills it up.
std::vector<uint8_t> tokens_of_text(const batches::Batch& batch) {
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

const std::vector<std::string> kNoDomains;

// Counts what the layers of experts do with the inputs of targets that count.
class ExpertCounter {
 public:
  ExpertCounter(const model::LanguageModel& model, const tokens::TokenSource& source,
                const EvaluationOptions& options) {
    for (const auto& layer : model.expert_layers()) {
      const int64_t experts = layer->experts(), vocabulary = model.config().vocabulary;
      uses.emplace_back(experts, vocabulary, source.domains());
      if (layer->experts_of_token() > 1) second_uses.push_back(uses.back());
      if (options.previous_tokens) previous_uses.emplace_back(experts, vocabulary, kNoDomains);
      moments_.emplace_back(experts);
      places_.push_back(layer->place());
    }
  }

  // A routing that counts the tokens of `batch`.
  experts::Routing watching(experts::RoutingMode mode, const batches::Batch& batch,
                            at::Device device) {
    if (uses.empty()) return {.mode = mode};
    Tokens these{batch.inputs, batch.domains, {}}, before;
    for (const int64_t target : batch.targets) these.counted.push_back(target >= 0 ? 1 : 0);
    if (!previous_uses.empty()) before = tokens_before(these, batch.context);
    const at::Tensor counted = to_mask(these.counted, device);
    return {.mode = mode,
            .counted = mode == experts::RoutingMode::kBalanced
                           ? to_mask(tokens_of_text(batch), device)
                           : at::Tensor(),
            .seen = [this, these, before, counted](const experts::SeenRoute& route) {
              const auto place =
                  static_cast<size_t>(std::ranges::find(places_, route.layer) - places_.begin());
              moments_[place].add(route.scores,
                                  counted.narrow(0, route.first_token, route.scores.size(0)));
              const at::Tensor expert = route.expert_of_token.to(at::kCPU, at::kInt);
              count(these, route.first_token, expert, uses[place]);
              if (!previous_uses.empty())
                count(before, route.first_token, expert, previous_uses[place]);
              if (route.second_of_token.defined())
                count(these, route.first_token, route.second_of_token.to(at::kCPU, at::kInt),
                      second_uses[place]);
            }};
  }

  void sum_over(comm::Communicator& workers) {
    for (std::vector<ExpertUse>* list : {&uses, &second_uses, &previous_uses}) {
      for (ExpertUse& use : *list) {
        const std::span<double> counts = use.counts();
        const at::Tensor all =
            at::from_blob(counts.data(), {std::ssize(counts)}, at::TensorOptions(at::kDouble));
        workers.all_reduce(all, comm::Reduction::kSum, {"expert use"});
      }
    }
    for (ScoreMoments& moments : moments_)
      workers.all_reduce(moments.sums(), comm::Reduction::kSum, {"moments of scores"});
  }

  std::vector<double> first_direction_shares() const {
    std::vector<double> shares;
    for (const ScoreMoments& moments : moments_) shares.push_back(moments.first_direction_share());
    return shares;
  }

  std::vector<ExpertUse> uses, second_uses, previous_uses;

 private:
  struct Tokens {
    std::vector<int64_t> ids;
    std::vector<int32_t> domains;  // empty: not known
    std::vector<uint8_t> counted;
  };

  static Tokens tokens_before(const Tokens& these, int64_t context) {
    Tokens before{std::vector<int64_t>(these.ids.size()), {}, these.counted};
    std::copy(these.ids.begin(), these.ids.end() - 1, before.ids.begin() + 1);
    for (size_t first = 0; first < before.counted.size(); first += static_cast<size_t>(context))
      before.counted[first] = 0;
    return before;
  }

  // A shard sees its part of the tokens, from `first` on.
  static void count(const Tokens& tokens, int64_t first, const at::Tensor& expert, ExpertUse& use) {
    const auto size = static_cast<size_t>(expert.numel());
    const auto of_these = [&]<typename T>(const std::vector<T>& all) {
      return all.empty() ? std::span<const T>()
                         : std::span(all).subspan(static_cast<size_t>(first), size);
    };
    use.add(of_these(tokens.ids), of_these(tokens.domains),
            {expert.const_data_ptr<int32_t>(), size}, of_these(tokens.counted));
  }

  std::vector<int64_t> places_;
  std::vector<ScoreMoments> moments_;
};

// Sums of losses: of all targets, and of those of each domain.
class LossCounter {
 public:
  explicit LossCounter(const std::vector<std::string>& domains)
      : domains_(domains), sums_(2 + 2 * domains.size()) {}

  void add(const batches::Batch& batch, const at::Tensor& losses) {
    sums_[0] += losses.sum(at::kDouble).item<double>();
    sums_[1] +=
        static_cast<double>(std::ranges::count_if(batch.targets, [](int64_t t) { return t >= 0; }));
    if (batch.target_domains.empty()) return;
    const at::Tensor here = losses.to(at::kCPU, at::kDouble).contiguous();
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0 || batch.target_domains[i] < 0) continue;
      const size_t at = 2 + 2 * static_cast<size_t>(batch.target_domains[i]);
      sums_[at] += here.const_data_ptr<double>()[i];
      sums_[at + 1] += 1;
    }
  }

  void sum_over(const model::LanguageModel& model) {
    const at::Tensor all =
        at::from_blob(sums_.data(), {std::ssize(sums_)}, at::TensorOptions(at::kDouble));
    if (model.grid().shard() != 0) all.zero_();  // its shards have what a replica has alike
    model.workers().all_reduce(all, comm::Reduction::kSum, {"evaluation"});
  }

  double sum() const { return sums_[0]; }
  uint64_t tokens() const { return static_cast<uint64_t>(sums_[1]); }
  double mean() const { return sums_[1] > 0 ? sums_[0] / sums_[1] : 0; }
  std::vector<DomainLoss> by_domain() const {
    std::vector<DomainLoss> list;
    for (size_t i = 0; i < domains_.size(); ++i) {
      const double sum = sums_[2 + 2 * i], tokens = sums_[3 + 2 * i];
      list.push_back({domains_[i], static_cast<uint64_t>(tokens), tokens > 0 ? sum / tokens : 0});
    }
    return list;
  }

 private:
  std::vector<std::string> domains_;
  std::vector<double> sums_;  // sum and tokens: of all, then of each domain
};

}  // namespace

std::string extent_in_words(const Evaluation& evaluation) {
  const std::string all = format_count(static_cast<double>(evaluation.split_tokens));
  if (evaluation.is_whole_split()) return fmt::format("the whole split, {} tokens", all);
  return fmt::format("{} of the split's {} tokens",
                     format_count(static_cast<double>(evaluation.tokens)), all);
}

int64_t evaluation_batch(const config::Config& config) {
  constexpr int64_t kMostTokens = 8192;  // enough for a GPU; more would only take memory
  const int64_t rows = config.training.batch / config.training.micro_steps;
  return std::max<int64_t>(1, std::min(rows, kMostTokens / config.model.context));
}

Evaluation evaluate(const model::LanguageModel& model, const model::ComputePlace& place,
                    const batches::EvalWindows& windows, const EvaluationOptions& options,
                    const std::function<bool(uint64_t)>& advance) {
  const at::NoGradGuard no_grad;
  comm::Communicator& workers = model.workers();
  const WindowRounds rounds(windows, {options.batch, options.max_windows},
                            {model.grid().replica(), model.grid().num_replicas()});
  ExpertCounter experts(model, windows.source(), options);
  LossCounter losses(windows.source().domains());
  uint64_t read_windows = 0;
  for (uint64_t round = 0; round < rounds.size(); ++round) {
    const batches::Batch read = rounds.take(round).batch;
    const loading::BatchTensors tensors = loading::to_device(read, place.device);
    const at::Tensor hidden =
        model.forward(tensors.inputs, experts.watching(options.routing, read, place.device));
    losses.add(read, model.losses(hidden, tensors.targets));
    read_windows += rounds.windows_of(round);
    if (advance &&
        comm::on_any_worker(workers, !advance(rounds.windows_of(round)), {"stop evaluation"}))
      break;
  }
  losses.sum_over(model);
  experts.sum_over(workers);
  Evaluation result;
  result.first_direction_shares = experts.first_direction_shares();
  result.experts = std::move(experts.uses);
  result.second_experts = std::move(experts.second_uses);
  result.previous_tokens = std::move(experts.previous_uses);
  result.domains = losses.by_domain();
  result.tokens = losses.tokens();
  result.windows = read_windows;
  result.split_tokens = windows.predictions();
  result.split_windows = windows.size();
  result.loss = losses.mean();
  result.perplexity = std::exp(result.loss);
  const tokens::TokenSourceInfo& source = windows.source().info();
  if (source.source_bytes && result.is_whole_split())
    result.bits_per_byte =
        losses.sum() / std::numbers::ln2 / static_cast<double>(*source.source_bytes);
  return result;
}

}  // namespace ballast::inference
