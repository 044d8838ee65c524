// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ballast/inference/likelihood.h"
#include "ballast/inference/sampling.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

enum class WritingEnd { kLength, kEndOfText, kStopped };  // kStopped: its on_token said so

// A text to be continued.
struct Writing {
  // What is continued, with what stands before a document: at least one token.
  std::vector<tokenizer::TokenId> text;
  int64_t max_tokens = 200;
  SamplingOptions sampling = {};
  uint64_t seed = 1, stream = 0;  // token i is drawn by (seed, stream, i)
  bool stop_at_end_of_text = true;
  int64_t likeliest = -1;  // how many WrittenToken has; -1: logprobs are not wanted at all
  // Asked when the text's turn has come, before anything is computed; false: kStopped.
  std::function<bool()> is_wanted = {};
  // Tells the log p of text[1..] too, before the first new token: on_read gets text.size() - 1.
  // Texts longer than the context are cut for that as rolling_windows (score.h) does.
  std::function<void(const std::vector<WrittenToken>&)> on_read = {};
  std::function<bool(const WrittenToken&)> on_token = {};  // false: this text has enough
  std::function<void(WritingEnd)> on_end = {};
};

// Continues many texts side by side, a token of each a step. Texts come and go at any time. When a
// text fills the model's context, its older half is forgotten. Not thread-safe.
// On the CPU in fp32 and fp64, with one worker, what a text gets does not depend, to the bit, on
// which others are written beside it, nor on how many there are or may be (kernels/rows_alone.h).
// On a GPU a step always has as many rows, free ones too, so that its sizes stay the same. There no
// more is certain: libraries may compute rows of one product in different orders, and experts get
// different numbers of rows.
// With several workers all give the same texts in the same order, and get the tokens that worker 0
// writes; logprobs are each worker's own. REQUIRES then: is_wanted and on_token answer alike.
class Writer {
 public:
  // At most `rows` texts at a time; others wait for their turn. Routing: greedy or priced.
  Writer(const model::LanguageModel& model, const model::ComputePlace& place,
         tokenizer::TokenId end_of_text, experts::RoutingMode routing, int64_t rows);
  ~Writer();

  // Its functions are called by step(), and may add others. Throws std::invalid_argument if the
  // text is empty or has a token that is not the model's.
  void add(Writing writing);
  // Reads texts whose turn has come, a few hundred tokens at a time, then writes a token of each
  // that was read. Collective. False: there was nothing to do.
  bool step();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::inference
