// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ballast/batches/eval_windows.h"
#include "ballast/inference/expert_use.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"
#include "ballast/record/validation_file.h"

namespace ballast::inference {

// What a domain of the text costs.
struct DomainLoss {
  std::string name;
  uint64_t tokens = 0;  // predicted tokens of it
  double loss = 0;      // their mean -log p, in nats; 0 without tokens
  // Whether there are enough of them to say anything.
  bool is_told() const { return tokens >= uint64_t{record::kTokensOfADomain}; }
};

struct Evaluation {
  double loss = 0;                               // mean -log p a token, in nats
  double perplexity = 0;                         // exp(loss)
  uint64_t tokens = 0;                           // predicted tokens
  uint64_t windows = 0;                          // that they were read in
  uint64_t split_tokens = 0, split_windows = 0;  // all there are
  std::optional<double> bits_per_byte;  // where the text's size is known and all of it was read
  // What each layer of experts did with the predicted tokens' inputs: their experts, or first and
  // second ones. Empty: there are none.
  std::vector<ExpertUse> experts, second_experts;
  // Of each layer, the share of the variance of what was compared, over the same inputs, that lies
  // in its first singular direction (score_moments.h).
  std::vector<double> first_direction_shares = {};
  // The same of the tokens that stood before those inputs in their window; the first of a window
  // has none. Domains are left out. Empty unless asked for.
  std::vector<ExpertUse> previous_tokens = {};
  // By domain of the predicted token, in the order of the source's domains(); tokens whose domain
  // is not known are in none. Empty: the source knows no domains.
  std::vector<DomainLoss> domains = {};

  bool is_whole_split() const { return tokens == split_tokens; }
};

// "the whole split, 98.3k tokens"; "4.1k of the split's 98.3k tokens".
std::string extent_in_words(const Evaluation& evaluation);

struct EvaluationOptions {
  int64_t batch = 8;         // windows at a time, on each replica
  uint64_t max_windows = 0;  // 0: all; else as many, spread evenly over the source
  experts::RoutingMode routing =
      experts::RoutingMode::kGreedy;  // balanced: within a worker's tokens of a batch
  bool previous_tokens = false;       // count what stood before an expert's tokens
};

// Windows at a time on each replica, as a run is validated and `eval` evaluates it: those of a
// micro-step, up to 8,192 tokens. Losses are the same to the bit where this is, whoever computes.
int64_t evaluation_batch(const config::Config& config);

// Next-token loss of the model over the windows, without gradients. The model's replicas take the
// batches in turn, also where they do not come out even; all get the result of all. Collective.
// `advance`, on all workers or none, is told of the windows that all took; where it returns false
// on any of them all stop, and the result covers what was read.
Evaluation evaluate(const model::LanguageModel& model, const model::ComputePlace& place,
                    const batches::EvalWindows& windows, const EvaluationOptions& options,
                    const std::function<bool(uint64_t)>& advance = {});

}  // namespace ballast::inference
