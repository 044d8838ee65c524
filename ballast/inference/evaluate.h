// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ballast/batches/eval_windows.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"

namespace ballast {

struct Evaluation {
  double loss = 0;                      // mean -log p a token, in nats
  double perplexity = 0;                // exp(loss)
  uint64_t tokens = 0;                  // predicted tokens
  std::optional<double> bits_per_byte;  // where the text's size is known and all of it was read
};

struct EvaluationLimits {
  int64_t batch = 8;         // windows at a time
  uint64_t max_windows = 0;  // 0: all; else as many, spread evenly over the source
};

// Next-token loss of the model over the windows, without gradients. `advance` is told of each
// batch's windows; returning false stops early, and the result covers what was read.
Evaluation evaluate(const LanguageModel& model, const ComputePlace& place,
                    const EvalWindows& windows, const TokenSourceInfo& source,
                    const EvaluationLimits& limits,
                    const std::function<bool(uint64_t)>& advance = {});

}  // namespace ballast
