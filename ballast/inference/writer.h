// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ballast/inference/sampling.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

struct Likelihood {
  tokenizer::TokenId token = 0;
  float logprob = 0;  // log p before temperature, top-k and top-p
};

struct WrittenToken {
  Likelihood chosen;
  std::vector<Likelihood> likeliest = {};  // as many as were asked for, falling
};

enum class WritingEnd { kLength, kEndOfText, kStopped };  // kStopped: its on_token said so

// A text to be continued.
struct Writing {
  std::vector<tokenizer::TokenId> text;  // what is continued, with what stands before a document
  int64_t max_tokens = 200;
  SamplingOptions sampling = {};
  uint64_t seed = 1, stream = 0;  // token i is drawn by (seed, stream, i)
  bool stop_at_end_of_text = true;
  int64_t likeliest = -1;  // how many WrittenToken has; -1: logprobs are not wanted at all
  // Tells the log p of text[1..] too, before the first new token: on_read gets text.size() - 1.
  std::function<void(const std::vector<WrittenToken>&)> on_read = {};
  std::function<bool(const WrittenToken&)> on_token;  // false: this text has enough
  std::function<void(WritingEnd)> on_end;
};

// Continues many texts side by side, a token of each a step. Texts come and go at any time; what
// one gets does not depend, to the bit, on the others. When a text fills the model's context, its
// older half is forgotten. Not thread-safe. With several workers all give the same texts in the
// same order, and get what worker 0 writes.
class Writer {
 public:
  // At most `rows` texts at a time; others wait for their turn. Routing: greedy or priced.
  Writer(const model::LanguageModel& model, const model::ComputePlace& place,
         tokenizer::TokenId end_of_text, experts::RoutingMode routing, int64_t rows);
  ~Writer();

  void add(Writing writing);  // its on_... are called by step()
  // Reads at most one new text, then writes a token of each that was read. False: nothing to do.
  bool step();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ballast::inference
