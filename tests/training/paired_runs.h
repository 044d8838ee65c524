// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "ballast/training/trainer.h"
#include "tests/training/counting_runs.h"

namespace ballast::test {

// Of two runs that must be the same to the bit.

// A small model with layers of a router's experts, "dense": without; two micro-steps a step.
inline config::Config small_config(const std::string& router, int64_t groups) {
  config::Config config;
  config.model = {.vocabulary = 24, .width = 32, .layers = 4, .heads = 2, .context = 16};
  config.training.batch = 8;
  config.training.micro_steps = 2;
  config.training.steps = 40;
  config.training.log_every = 7;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.warmup_steps = 5;
  if (router == "dense") return config;
  config.experts.layers = 2;
  config.experts.count = 4;
  config.experts.groups = groups;
  if (router != "base") {
    config.experts.router = router;
    config.experts.placement = config::Placement::kReplace;
    config.experts.second_expert = config::SecondExpert::kRandom;
  }
  return config;
}

// What it learns from.
inline std::vector<batches::WeightedSource> small_source() { return counting_source(3000, 24); }

inline model::ComputePlace gpu(const std::string& precision) {
  return model::choose_place({.device = config::DeviceChoice::kCuda,
                              .precision = config::choice_of<config::Precision>(precision),
                              .deterministic = true});
}

// Steps with the same losses, norms and routes, then the same weights and all that goes with them.
inline void expect_same_steps(training::Trainer& got, training::Trainer& expected, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const training::StepStats a = got.step(), b = expected.step();
    ASSERT_EQ(a.loss, b.loss);
    ASSERT_EQ(a.gradient_norm, b.gradient_norm);
    ASSERT_EQ(a.expert_gradient_norm, b.expert_gradient_norm);
    ASSERT_EQ(a.parts.size(), b.parts.size());
    ASSERT_EQ(a.layers.size(), b.layers.size());
    for (size_t i = 0; i < a.layers.size(); ++i) {
      EXPECT_EQ(a.layers[i].greedy_share, b.layers[i].greedy_share);
      EXPECT_EQ(a.layers[i].relative_gap, b.layers[i].relative_gap);
      EXPECT_EQ(a.layers[i].dropped_share, b.layers[i].dropped_share);
    }
  }
  const parameters::ParameterTable &one = got.table(), &other = expected.table();
  EXPECT_TRUE(at::equal(one.master(), other.master()));
  EXPECT_TRUE(at::equal(one.working(), other.working()));
  EXPECT_TRUE(at::equal(one.first_moment(), other.first_moment()));
  EXPECT_TRUE(at::equal(one.second_moment(), other.second_moment()));
  EXPECT_EQ(got.state().updates, expected.state().updates);
  const auto prices = [](const training::Trainer& of, size_t layer) {
    const experts::PriceAverage* const prices =
        of.model().expert_layers()[layer]->router().prices();
    return prices == nullptr ? at::empty({0}, at::kDouble) : prices->value();  // of a gate
  };
  for (size_t i = 0; i < got.model().expert_layers().size(); ++i)
    EXPECT_TRUE(at::equal(prices(got, i), prices(expected, i)));
}

}  // namespace ballast::test
