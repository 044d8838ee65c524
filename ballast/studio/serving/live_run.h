// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "ballast/record/run_log.h"
#include "ballast/studio/serving/live_metrics.h"
#include "ballast/studio/serving/run_file.h"

namespace ballast::serving {

// What a page knows already, by the answer it got before.
struct KnownOfRun {
  uint64_t life = 0, end = 0, validations = 0, samples = 0;
};

// A run as people who watch it see it, while it trains and later. It only ever reads. All functions
// may be called from any thread; those of many watchers share what is read.
class LiveRun {
 public:
  // The folder need not be there yet. `life`: a number that other servers do not have.
  LiveRun(std::filesystem::path folder, uint64_t life);

  // Whether it is the folder of a run, or may become one.
  bool may_be_run() const;
  // {"state", "step", "steps"}, as news() has them.
  nlohmann::json summary();
  // What is new since then, as docs/live.md describes it.
  nlohmann::json news(const KnownOfRun& known);

 private:
  // What config.toml says.
  struct Plan {
    int64_t steps = 0;  // 0: not known
    double max_time = 0;
    std::string system;
  };
  // The newest start of run.json.
  struct Start {
    int64_t time = 0;  // seconds since 1970; 0: not known
    bool is_here = false;
  };
  struct Samples {
    uint64_t number = 0;  // changes with them
    std::vector<record::Sample> newest = {};
  };

  void refresh();
  void read_config();
  void read_record();
  void read_samples();
  void read_checkpoints();
  std::string state() const;
  double seconds_left() const;
  nlohmann::json brief() const;

  std::filesystem::path folder_;
  std::mutex mutex_;
  LiveMetrics metrics_;
  std::optional<FileMark> config_mark_, record_mark_, samples_mark_, checkpoints_mark_;
  Plan plan_;
  Start start_;
  Samples samples_;
  std::optional<uint64_t> checkpoint_;  // the newest one's step
};

}  // namespace ballast::serving
