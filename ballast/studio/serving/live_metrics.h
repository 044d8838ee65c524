// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "ballast/record/validation_file.h"
#include "ballast/studio/serving/run_file.h"

namespace ballast::serving {

// A training step, as far as charts need it. Numbers that are not there are NaN.
struct LivePoint {
  uint64_t end = 0;  // the byte behind its line in metrics.jsonl
  int64_t step = 0;
  double loss = record::kUnknown;
  double tokens = record::kUnknown, seconds = record::kUnknown;  // since the run began
  double tokens_per_second = record::kUnknown;
  double assign_seconds = record::kUnknown;  // over all layers of experts
  double greedy_share = record::kUnknown;    // BASE: mean over the layers
  double dropped_share = record::kUnknown;   // gates: mean over the layers
};

struct LiveValidation {
  uint64_t end = 0;
  int64_t step = 0;
  double loss = record::kUnknown, perplexity = record::kUnknown;
  double tokens = record::kUnknown, floor = record::kUnknown;
  double busiest_share = record::kUnknown;  // of the layer where it is largest
};

// Follows the metrics.jsonl of a run that may be training. Every byte is read once, however many
// watch, and a file that did not change costs one look at its name. Of a long past only samples are
// parsed, and all validations are found bit by bit.
class LiveMetrics {
 public:
  // `life`: the first life() (below).
  LiveMetrics(std::filesystem::path file, uint64_t life) : file_(std::move(file)), life_(life) {}

  // Takes in what was added, up to a bound. A line that has no end yet is left for the next time.
  void refresh();

  // Changes where the file was replaced or cut, as by a run that goes on from an earlier step: then
  // nothing holds that was told before.
  uint64_t life() const { return life_; }
  uint64_t end() const { return end_; }       // the byte up to which points are known
  bool is_behind() const { return behind_; }  // there is more to be read
  const std::optional<FileMark>& mark() const { return mark_; }  // none: there is no such file

  // By rising step. At most kMostPoints; older ones are thinned out, evenly over the file.
  static constexpr size_t kMostPoints = 4000, kFewPoints = 2000;
  const std::vector<LivePoint>& points() const { return points_; }
  const std::vector<LiveValidation>& validations() const { return validations_; }
  uint64_t validations_seen() const { return validations_seen_; }  // changes with validations()
  // Seconds a step takes, by the newest ones; NaN where there are not two.
  double step_seconds() const;

 private:
  struct Range {
    uint64_t from = 0, to = 0;
  };
  void start_anew();
  bool is_continued(const RunFile& file) const;
  uint64_t read_past(const RunFile& file, uint64_t to);
  bool read_new(const RunFile& file);
  void search_validations(const RunFile& file);
  void take(std::string_view line, uint64_t end);

  std::filesystem::path file_;
  uint64_t life_ = 0, end_ = 0, validations_seen_ = 0;
  bool behind_ = false;
  std::optional<FileMark> mark_;
  uint64_t last_bytes_ = 0;  // checksum of what stands before end_
  std::deque<Range> unsearched_;
  std::vector<LivePoint> points_;
  std::deque<LivePoint> newest_;  // without a gap
  std::vector<LiveValidation> validations_;
};

}  // namespace ballast::serving
