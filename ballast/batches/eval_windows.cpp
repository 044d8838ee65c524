// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/eval_windows.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"

namespace ballast::batches {

EvalWindows::EvalWindows(std::shared_ptr<const tokens::TokenSource> source, int64_t context,
                         int64_t stride)
    : source_(std::move(source)), leads_in_(source_->info().end_of_text ? 1 : 0) {
  if (context < 1) fail("the context is {} tokens, but must be at least 1", context);
  if (stride < 1 || stride > context) {
    fail("the stride is {} tokens, but must be between 1 and the context, {}", stride, context);
  }
  const uint64_t length = source_->size() + leads_in_;
  if (length < 2) fail("{} has no token to predict", source_->info().name);
  context_ = static_cast<uint64_t>(context);
  stride_ = static_cast<uint64_t>(stride);
  predictions_ = length - 1;
  const uint64_t after_first = predictions_ - std::min(predictions_, context_);
  windows_ = 1 + (after_first + stride_ - 1) / stride_;
}

Batch EvalWindows::at(uint64_t first, uint64_t count) const {
  if (first > windows_ || count > windows_ - first) {
    throw std::out_of_range(
        fmt::format("EvalWindows: windows [{}, {}) of {}", first, first + count, windows_));
  }
  std::vector<uint64_t> windows(count);
  std::iota(windows.begin(), windows.end(), first);
  return at(windows);
}

Batch EvalWindows::at(std::span<const uint64_t> windows) const {
  for (const uint64_t window : windows) {
    if (window >= windows_)
      throw std::out_of_range(fmt::format("EvalWindows: window {} of {}", window, windows_));
  }
  const uint64_t count = windows.size();
  Batch batch{.rows = static_cast<int64_t>(count),
              .context = static_cast<int64_t>(context_),
              .inputs = std::vector<int64_t>(count * context_),
              .targets = std::vector<int64_t>(count * context_, kIgnoredTarget)};
  for (uint64_t row = 0; row < count; ++row) {
    fill_row(windows[row], std::span(batch.inputs).subspan(row * context_, context_),
             std::span(batch.targets).subspan(row * context_, context_));
  }
  if (source_->domains().empty()) return batch;
  batch.domains.assign(count * context_, -1);
  batch.target_domains = batch.domains;
  for (uint64_t row = 0; row < count; ++row) {
    fill_domains(windows[row], std::span(batch.domains).subspan(row * context_, context_),
                 std::span(batch.target_domains).subspan(row * context_, context_));
  }
  return batch;
}

// Prediction p has token p as input and p + 1 as target, counting the end-of-text put in front.
void EvalWindows::fill_row(uint64_t window, std::span<int64_t> inputs,
                           std::span<int64_t> targets) const {
  const uint64_t begin = window * stride_, end = std::min(begin + context_, predictions_);
  const uint64_t new_from = window == 0 ? 0 : begin + context_ - stride_;
  std::vector<int64_t> tokens(end - begin + 1);
  const uint64_t lead = begin == 0 ? leads_in_ : 0;
  if (lead == 1) tokens[0] = *source_->info().end_of_text;
  source_->read(begin + lead - leads_in_, std::span(tokens).subspan(lead));
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  for (uint64_t p = new_from; p < end; ++p) targets[p - begin] = tokens[p - begin + 1];
}

void EvalWindows::fill_domains(uint64_t window, std::span<int32_t> inputs,
                               std::span<int32_t> targets) const {
  const uint64_t begin = window * stride_, end = std::min(begin + context_, predictions_);
  std::vector<int32_t> domains(end - begin + 1, -1);
  const uint64_t lead = begin == 0 ? leads_in_ : 0;
  source_->read_domains(begin + lead - leads_in_, std::span(domains).subspan(lead));
  std::copy(domains.begin(), domains.end() - 1, inputs.begin());
  std::copy(domains.begin() + 1, domains.end(), targets.begin());
}

}  // namespace ballast::batches
