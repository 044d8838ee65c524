// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ballast/studio/plan/plan.h"

namespace ballast::plan {

// A step that was measured on one worker.
struct MeasuredStep {
  std::string name;
  config::Config config;
  double seconds;
};

// As `ballast bench step --size V,D,L,H,S,B` makes it.
inline config::Config dense(const config::ModelConfig& model, int64_t batch) {
  config::Config config;
  config.model = model;
  config.training.batch = batch;
  config.experts.groups = 1;
  return config;
}

// As `--systems` makes them of it: `experts`, and `sublayers` of all BASE layers together.
inline config::Config base(config::Config config, int64_t layers, int64_t experts,
                           int64_t sublayers) {
  config.experts.layers = layers;
  config.experts.count = experts;
  config.experts.sublayers = sublayers / layers;
  return config;
}

inline config::Config gated(config::Config config, const std::string& router, int64_t experts) {
  config.experts.router = router;
  config.experts.layers = config.model.layers / 2;
  config.experts.count = experts;
  config.experts.placement = config::Placement::kReplace;
  return config;
}

// 0.1: predicted 10 % longer than measured.
inline double error_of(const MeasuredStep& step, const Device& device) {
  const Plan plan =
      make_plan(step.config, {.workers = 1, .device = device, .network = find_network("nvlink")});
  return plan.own().step.total() / step.seconds - 1;
}

}  // namespace ballast::plan
