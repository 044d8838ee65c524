// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ballast/record/validation_file.h"

namespace ballast::record {

// What metrics.jsonl tells (docs/file_formats.md). Numbers that are not there are NaN.

struct LayerStep {
  int64_t layer = 0;
  double assign_seconds = kUnknown, exchange_seconds = kUnknown;
  double mean_gate = kUnknown;     // of a token's first expert
  double greedy_share = kUnknown;  // BASE
  // Parts of what the optimum has above a blind spread; in older files, of the assignment's value.
  double relative_gap = kUnknown;     // of the exact solver: certified
  double shortfall_bound = kUnknown;  // of others: what may be missing, by their own prices
  double dropped_share = kUnknown, passed_share = kUnknown, balance_loss = kUnknown;  // gates
};

struct StepRecord {
  int64_t step = 0;
  double loss = kUnknown, learning_rate = kUnknown;
  double tokens = kUnknown, seconds = kUnknown;  // since the run began
  double tokens_per_second = kUnknown;           // of this step
  std::vector<LayerStep> layers = {};
  std::map<std::string, double> parts = {};  // seconds of this step by part
  bool skipped = false;                      // it did not move the weights
};

struct ValidationPoint {
  int64_t step = 0;
  double tokens = kUnknown, seconds = kUnknown;  // trained until then
  double loss = kUnknown;
  double valid_tokens = kUnknown;  // that the loss is of
  bool whole_split = false;        // they are all there are
};

struct Metrics {
  std::vector<StepRecord> steps;             // by rising step
  std::vector<ValidationPoint> validations;  // by rising step
  std::optional<LastValidation> last_validation;
  size_t damaged = 0;    // lines that were passed over
  bool is_torn = false;  // its last line has no end, and was passed over, too
};

// A line without an end is passed over: it is torn, or just being written.
Metrics read_metrics(const std::filesystem::path& path);

// Those whose loss and tokens are known.
std::vector<ValidationPoint> known_points(const std::vector<ValidationPoint>& points);
// Validation loss after so many tokens: linear in the logarithm of tokens between known points. NaN
// where that is beyond the first or the last.
double loss_at(const std::vector<ValidationPoint>& points, double tokens);

}  // namespace ballast::record
