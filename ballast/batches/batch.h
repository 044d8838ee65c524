// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ballast::batches {

// Targets with this value take no part in the loss.
inline constexpr int64_t kIgnoredTarget = -100;

// What one forward pass reads: targets are the inputs shifted by one token.
struct Batch {
  int64_t rows = 0;
  int64_t context = 0;
  std::vector<int64_t> inputs;   // [rows, context]
  std::vector<int64_t> targets;  // [rows, context]
  // [rows, context], of the inputs: indices into TokenSource::domains(), -1 where not known. Empty
  // where the source knows none, and always in training batches.
  std::vector<int32_t> domains = {};
  // The same of the targets, ignored ones included.
  std::vector<int32_t> target_domains = {};
};

}  // namespace ballast::batches
