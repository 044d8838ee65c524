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

namespace ballast::inference {

// What a domain of the text costs.
struct DomainLoss {
  std::string name;
  uint64_t tokens = 0;  // predicted tokens of it
  double loss = 0;      // their mean -log p, in nats; 0 without tokens
};

struct Evaluation {
  double loss = 0;                      // mean -log p a token, in nats
  double perplexity = 0;                // exp(loss)
  uint64_t tokens = 0;                  // predicted tokens
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
};

struct EvaluationOptions {
  int64_t batch = 8;         // windows at a time, on each replica
  uint64_t max_windows = 0;  // 0: all; else as many, spread evenly over the source
  int64_t together = 0;      // windows that lie side by side there, a multiple of batch; 0: batch
  experts::RoutingMode routing =
      experts::RoutingMode::kGreedy;  // balanced: within a worker's tokens of a batch
  bool previous_tokens = false;       // count what stood before an expert's tokens
};

// Next-token loss of the model over the windows, without gradients. The model's replicas take the
// batches in turn, also where they do not come out even; all get the result of all. Collective.
// `advance`, on all workers or none, is told of the windows that all took; where it returns false
// on any of them all stop, and the result covers what was read.
Evaluation evaluate(const model::LanguageModel& model, const model::ComputePlace& place,
                    const batches::EvalWindows& windows, const EvaluationOptions& options,
                    const std::function<bool(uint64_t)>& advance = {});

}  // namespace ballast::inference
