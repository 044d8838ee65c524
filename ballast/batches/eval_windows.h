// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ballast/batches/batch.h"
#include "ballast/tokens/token_source.h"

namespace ballast::batches {

// Windows over a source, in order, in which every token is predicted exactly once. Each window
// after the first predicts `stride` new tokens and sees context - stride before them, whose targets
// are kIgnoredTarget; stride == context means no overlap (fast), a small stride nearly full context
// for every token (slow). Where the source's end-of-text is known it stands before the first token,
// which is then predicted too; otherwise the first token is only read.
class EvalWindows {
 public:
  // Throws UserError for a stride outside [1, context] or a source with nothing to predict.
  EvalWindows(std::shared_ptr<const tokens::TokenSource> source, int64_t context, int64_t stride);

  const tokens::TokenSource& source() const { return *source_; }
  uint64_t size() const { return windows_; }             // windows
  uint64_t predictions() const { return predictions_; }  // targets in all windows together
  // These windows as rows, in their order. A row beyond the end of the source is filled up with
  // ignored targets. Domains are filled in where the source knows them; the end-of-text put before
  // the first token, and what fills up a row, have -1. Throws std::out_of_range beyond size().
  // Thread-safe.
  Batch at(std::span<const uint64_t> windows) const;
  Batch at(uint64_t first, uint64_t count) const;  // windows [first, first + count)

 private:
  void fill_row(uint64_t window, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  void fill_domains(uint64_t window, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  std::shared_ptr<const tokens::TokenSource> source_;
  uint64_t context_, stride_;
  uint64_t leads_in_;  // 1: end-of-text is put before the first token
  uint64_t predictions_, windows_;
};

}  // namespace ballast::batches
