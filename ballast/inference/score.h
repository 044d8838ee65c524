// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ballast/experts/routing.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"

namespace ballast::inference {

// A question to the model: how likely is `target` after `context`?
struct Continuation {
  std::vector<int64_t> context;  // at least one token
  std::vector<int64_t> target;   // at least one, and no more than the model's context has
};

struct ContinuationScore {
  double nats = 0;            // -log p of all of the target
  bool is_likeliest = false;  // at each place no token is likelier than the target's
};

struct ScoreOptions {
  int64_t batch = 8;  // continuations at a time, on each replica
  experts::RoutingMode routing =
      experts::RoutingMode::kGreedy;  // greedy or priced: a token must not see the others
};

// The scores of all continuations, in their order. What does not fit into the model's context is
// left out at the start. The model's replicas take batches in turn; all get all results.
// Collective. `advance`, on all workers or none, is told of the continuations that all took; where
// it returns false on any of them all stop, and get no scores.
std::vector<ContinuationScore> score(const model::LanguageModel& model,
                                     const model::ComputePlace& place,
                                     const std::vector<Continuation>& continuations,
                                     const ScoreOptions& options,
                                     const std::function<bool(uint64_t)>& advance = {});

// A text longer than the context, cut so that each token is predicted once: `first`, which stands
// before the text, and full contexts from there on; the last one reaches back to be full, too.
std::vector<Continuation> rolling_windows(const std::vector<int64_t>& tokens, int64_t first,
                                          int64_t context);

}  // namespace ballast::inference
