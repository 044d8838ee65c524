// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>

namespace ballast::step {

// What a step of training does at a moment.
enum class StepPart {
  kOther,          // none of the below: the next batch, the host's own work
  kAttention,      // with its norm
  kFeedForward,    // the same
  kExperts,        // the experts, the order of rows; rows that shards of a replica gather
  kAssignment,     // affinities and assignment; gates and places, with counts that are exchanged
  kCommunication,  // all_to_all, sums of shards, gradients' sums not yet done, step totals
  kVocabulary,     // embedding, output norm, loss; with shards their exchange
  kOptimizer,      // gradients cleared, their norms, the update
};
inline constexpr int kStepParts = 8;

// "attention", "feed_forward" and so on, as metrics.jsonl has them.
std::string_view part_name(StepPart part);

// Is told which part of a step goes on: forward, and backward in the reverse order. One thread at a
// time calls it.
class StepWatch {
 public:
  virtual ~StepWatch() = default;

  StepPart part() const { return part_; }
  void switch_to(StepPart part) {
    if (part == part_) return;
    part_ = part;
    switched(part);
  }

 protected:
  virtual void switched(StepPart part) = 0;

 private:
  StepPart part_ = StepPart::kOther;
};

// Returns x. What is computed from it belongs to `part`. On the way back, once the gradient by x is
// there, what follows belongs to the part before it. Without a watch (null), or where the part is
// the same, it is x itself and nothing is added to the graph.
at::Tensor pass_into(StepPart part, const at::Tensor& x, StepWatch* watch);
// exchange(x), which belongs to the part kCommunication, forward and backward. What comes before
// and after it belongs to the current part.
at::Tensor communicate(const at::Tensor& x, StepWatch* watch,
                       const std::function<at::Tensor(const at::Tensor&)>& exchange);

}  // namespace ballast::step
