// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ballast/comm/any_worker.h"
#include "ballast/system/random.h"

namespace ballast::inference {
namespace {

using at::Tensor;

// The state of a batch of continuations.
class Continuation {
 public:
  Continuation(const model::LanguageModel& model, const model::ComputePlace& place,
               experts::RoutingMode routing, size_t prompts)
      : model_(model),
        place_(place),
        routing_{.mode = routing},
        cache_(model.new_cache(static_cast<int64_t>(prompts), options(place))) {}

  static at::TensorOptions options(const model::ComputePlace& place) {
    return at::device(place.device).dtype(place.working);
  }

  // Reads all but the last token of `text` into row `row` of the cache; at most half a context of
  // it, so that there is room to go on.
  void read(size_t row, const std::vector<tokenizer::TokenId>& text) {
    const auto context = static_cast<size_t>(model_.config().context);
    const size_t kept = std::min(
        text.size(), std::max<size_t>(1, text.size() < context ? context - 1 : context / 2));
    model::KeyValueCache one = model_.new_cache(1, options(place_));
    if (kept > 1) {
      const std::vector<int64_t> ids(text.end() - static_cast<std::ptrdiff_t>(kept),
                                     text.end() - 1);
      model_.forward(to_tensor(ids).unsqueeze(0), routing_, one);
    }
    cache_.take_row(static_cast<int64_t>(row), one);
  }

  // The logits [B, V] after each row's last token.
  Tensor step(const std::vector<int64_t>& last) {
    const Tensor hidden = model_.forward(to_tensor(last).unsqueeze(1), routing_, cache_);
    return model_.logits(hidden).to(at::kFloat).cpu().contiguous();
  }

  bool is_full(size_t row) const {
    return cache_.cached()[static_cast<int64_t>(row)].item<int64_t>() >= model_.config().context;
  }

 private:
  Tensor to_tensor(const std::vector<int64_t>& ids) const {
    Tensor host = at::empty({static_cast<int64_t>(ids.size())}, at::kLong);
    std::ranges::copy(ids, host.mutable_data_ptr<int64_t>());
    return host.to(place_.device);
  }

  const model::LanguageModel& model_;
  model::ComputePlace place_;
  experts::Routing routing_;
  model::KeyValueCache cache_;
};

// Token number `index` of every row, by its logits [B, V]. Those of worker 0 count: the others'
// may differ by rounding, and all must go on with the same.
std::vector<tokenizer::TokenId> choose_tokens(comm::Communicator& workers, const Tensor& logits,
                                              const GenerationOptions& options, int64_t index) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  const Tensor chosen = at::empty({rows}, at::kLong);
  for (int64_t p = 0; p < rows; ++p) {
    const auto* row = logits.const_data_ptr<float>() + p * vocabulary;
    RandomStream random(options.seed, "sample", static_cast<uint64_t>(p),
                        static_cast<uint64_t>(index));
    chosen.mutable_data_ptr<int64_t>()[p] =
        sample_token({row, static_cast<size_t>(vocabulary)}, options.sampling, random.uniform());
  }
  if (workers.size() > 1) workers.broadcast(chosen, 0, {"new tokens"});
  const auto* begin = chosen.const_data_ptr<int64_t>();
  return {begin, begin + rows};
}

}  // namespace

std::vector<std::vector<tokenizer::TokenId>> generate(
    const model::LanguageModel& model, const model::ComputePlace& place,
    tokenizer::TokenId end_of_text, const std::vector<std::vector<tokenizer::TokenId>>& prompts,
    const GenerationOptions& options, const TokenCallback& on_token) {
  const at::NoGradGuard no_grad;
  const size_t rows = prompts.size();
  std::vector<std::vector<tokenizer::TokenId>> texts(rows), written(rows);
  std::vector<bool> done(rows, options.max_tokens <= 0);
  Continuation continuation(model, place, options.routing, rows);
  for (size_t p = 0; p < rows; ++p) {
    texts[p] = options.start;
    if (texts[p].empty()) texts[p] = {end_of_text};  // as before every document in training
    texts[p].insert(texts[p].end(), prompts[p].begin(), prompts[p].end());
    continuation.read(p, texts[p]);
  }
  for (int64_t i = 0; std::ranges::count(done, false) > 0; ++i) {
    std::vector<int64_t> last;
    for (size_t p = 0; p < rows; ++p) {
      if (continuation.is_full(p)) continuation.read(p, texts[p]);
      last.push_back(texts[p].back());
    }
    const std::vector<tokenizer::TokenId> next =
        choose_tokens(model.workers(), continuation.step(last), options, i);
    bool stop = false;
    for (size_t p = 0; p < rows && !stop; ++p) {
      if (done[p]) continue;
      const tokenizer::TokenId token = next[p];
      done[p] =
          (token == end_of_text && options.stop_at_end_of_text) || i + 1 >= options.max_tokens;
      if (token == end_of_text && options.stop_at_end_of_text) continue;
      texts[p].push_back(token);
      written[p].push_back(token);
      stop = on_token && !on_token(p, token);
    }
    if (on_token && comm::on_any_worker(model.workers(), stop, {"stop writing"})) break;
  }
  return written;
}

}  // namespace ballast::inference
