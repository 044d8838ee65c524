// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ballast/batches/eval_windows.h"
#include "ballast/inference/prefix_comparison.h"
#include "ballast/model/device.h"
#include "ballast/model/language_model.h"

namespace ballast::inference {

struct AuditOptions {
  experts::RoutingMode routing = experts::RoutingMode::kGreedy;
  int64_t batch = 8;          // windows at a time, on each replica
  uint64_t max_windows = 64;  // spread evenly over the source; 0: all
  int64_t cuts = 4;           // of each window, one in each quarter of it
  uint64_t seed = 1;          // of the cuts and of the tokens put after them
};

struct AuditReport {
  int64_t windows = 0, cuts = 0;  // looked at
  ComparisonCounts counts;
  ComparisonBounds bounds;
  std::string first_leak;  // for people; empty: none
  bool passed() const { return counts.changed_routes == 0 && counts.changed_logits == 0; }
};

// Whether the model looks ahead. Windows are run as they are and with all tokens after a cut
// replaced by others: of the tokens before the cut, every BASE layer's expert and the logits must
// stay as they were, but for rounding (PrefixComparison says how much). Collective; all workers get
// the report of all. `advance` as in evaluate(); the report covers what was looked at.
// UserError: there is nothing to cut or to replace.
AuditReport audit_causality(const model::LanguageModel& model, const model::ComputePlace& place,
                            const batches::EvalWindows& windows, const AuditOptions& options,
                            const std::function<bool(uint64_t)>& advance = {});

}  // namespace ballast::inference
