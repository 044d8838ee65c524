// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ballast/inference/batch_tensors.h"
#include "ballast/kernels/cross_entropy.h"

namespace ballast {

Evaluation evaluate(const LanguageModel& model, const ComputePlace& place,
                    const EvalWindows& windows, const TokenSourceInfo& source,
                    const EvaluationLimits& limits, const std::function<bool(uint64_t)>& advance) {
  const at::NoGradGuard no_grad;
  const uint64_t wanted =
      limits.max_windows ? std::min(limits.max_windows, windows.size()) : windows.size();
  double sum = 0;
  Evaluation result;
  for (uint64_t done = 0; done < wanted;) {
    // A part of the windows is taken as runs of one batch each, spread evenly over the source.
    const uint64_t count = std::min<uint64_t>(static_cast<uint64_t>(limits.batch), wanted - done);
    const uint64_t first = wanted == windows.size() ? done
                                                    : done * (windows.size() - count) /
                                                          std::max<uint64_t>(1, wanted - count);
    const Batch batch = windows.at(std::min(first, windows.size() - count), count);
    const BatchTensors tensors = to_device(batch, place.device);
    const at::Tensor losses = next_token_losses(model.forward(tensors.inputs),
                                                model.token_embedding().value, tensors.targets);
    sum += losses.sum(at::kDouble).item<double>();
    result.tokens += static_cast<uint64_t>(
        std::ranges::count_if(batch.targets, [](int64_t t) { return t >= 0; }));
    done += count;
    if (advance && !advance(count)) break;
  }
  result.loss = result.tokens > 0 ? sum / static_cast<double>(result.tokens) : 0;
  result.perplexity = std::exp(result.loss);
  if (source.source_bytes && result.tokens == windows.predictions()) {
    result.bits_per_byte = sum / std::numbers::ln2 / static_cast<double>(*source.source_bytes);
  }
  return result;
}

}  // namespace ballast
