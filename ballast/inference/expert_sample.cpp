// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/expert_sample.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "ballast/inference/window_rounds.h"
#include "ballast/loading/batch_tensors.h"
#include "ballast/system/random.h"

namespace ballast::inference {
namespace {

// Where in a window an expert's tokens are looked for first: nowhere in particular, but always
// there.
uint64_t a_place(size_t window, int64_t expert, size_t places) {
  return RandomStream(1, "context of expert", window, static_cast<uint64_t>(expert)).below(places);
}

}  // namespace

ExpertSample::ExpertSample(std::shared_ptr<const batches::EvalWindows> source, uint64_t windows)
    : source_(std::move(source)), wanted_(std::min(windows, source_->size())) {}

void ExpertSample::read_next(const loading::LoadedModel& loaded, experts::RoutingMode routing) {
  if (is_whole() || loaded.model->workers().size() != 1)
    throw std::invalid_argument("ExpertSample: nothing is left, or several workers");
  const at::NoGradGuard no_grad;
  const WindowRounds rounds(*source_, {.batch = 1, .max_windows = wanted_}, {});
  const batches::Batch batch = rounds.take(read()).batch;
  size_t length = batch.targets.size();  // without what fills up the last window
  while (length > 0 && batch.targets[length - 1] < 0) --length;
  Window window;
  window.ids.assign(batch.inputs.begin(), batch.inputs.begin() + static_cast<ptrdiff_t>(length));
  if (!batch.domains.empty())
    window.domains.assign(batch.domains.begin(),
                          batch.domains.begin() + static_cast<ptrdiff_t>(length));
  experts::Routing watched{.mode = routing};
  watched.seen = [&](const experts::SeenRoute& route) {
    const at::Tensor expert = route.expert_of_token.to(at::kCPU, at::kInt).contiguous();
    const auto* const first = expert.const_data_ptr<int32_t>();
    window.expert_of_token.emplace_back(first, first + length);
  };
  loaded.model->forward(loading::to_device(batch, loaded.place.device).inputs, watched);
  vocabulary_ = loaded.config.model.vocabulary;
  windows_.push_back(std::move(window));
}

uint64_t ExpertSample::tokens() const {
  uint64_t sum = 0;
  for (const Window& window : windows_) sum += window.ids.size();
  return sum;
}

ExpertUse ExpertSample::use_of(size_t layer, int64_t expert) const {
  ExpertUse use(2, vocabulary_, source_->source().domains());
  for (const Window& window : windows_) {
    std::vector<int32_t> is_other;
    for (const int32_t one : window.expert_of_token.at(layer))
      is_other.push_back(one == expert ? 0 : 1);
    use.add(window.ids, window.domains, is_other, {});
  }
  return use;
}

TokenInContext ExpertSample::in_context(const Window& window, int64_t position,
                                        int64_t around) const {
  const auto ids = [&](int64_t begin, int64_t end) {
    return std::vector<int64_t>(window.ids.begin() + begin, window.ids.begin() + end);
  };
  const int64_t size = std::ssize(window.ids);
  const auto place = static_cast<size_t>(position);
  TokenInContext found{.before = ids(std::max<int64_t>(0, position - around), position),
                       .after = ids(position + 1, std::min(size, position + 1 + around)),
                       .token = window.ids[place]};
  if (!window.domains.empty() && window.domains[place] >= 0)
    found.domain = source_->source().domains()[static_cast<size_t>(window.domains[place])];
  return found;
}

std::vector<TokenInContext> ExpertSample::contexts_of(size_t layer, int64_t expert, size_t n,
                                                      int64_t around) const {
  std::vector<TokenInContext> all;
  for (size_t number = 0; number < windows_.size(); ++number) {
    const std::vector<int32_t>& experts = windows_[number].expert_of_token.at(layer);
    if (experts.empty()) continue;
    const uint64_t first = a_place(number, expert, experts.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      const size_t place = (first + i) % experts.size();
      if (experts[place] != expert) continue;
      all.push_back(in_context(windows_[number], static_cast<int64_t>(place), around));
      break;
    }
  }
  if (all.size() <= n) return all;
  std::vector<TokenInContext> some;
  for (size_t i = 0; i < n; ++i) some.push_back(std::move(all[i * all.size() / n]));
  return some;
}

}  // namespace ballast::inference
