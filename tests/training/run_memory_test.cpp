// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/run_memory.h"

#include <gmock/gmock.h>

#include "ballast/system/progress.h"
#include "tests/support/config_of.h"
#include "tests/support/error_of.h"

namespace ballast::training {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const model::ComputePlace kGpu{
    .device = at::Device(at::kCUDA, 0), .working = at::kBFloat16, .master = at::kFloat};

// Activations of its 64 sequences are most of it.
config::Config long_micro_steps() {
  config::Config config = test::config_of(
      {.vocabulary = 512, .width = 64, .layers = 4, .heads = 2, .hidden = 0, .context = 128});
  config.training.batch = 64;
  return config;
}

std::string refusal(const config::Config& config, const model::ComputePlace& place,
                    std::optional<double> there) {
  return test::error_of([&] { check_memory(config, place, 1, there); });
}

TEST(RunMemory, WhatFitsIsLetPass) {
  const double needed = predict_memory(long_micro_steps(), kGpu, 1).total();
  EXPECT_EQ(refusal(long_micro_steps(), kGpu, needed), "no error");
  EXPECT_EQ(refusal(long_micro_steps(), kGpu, std::nullopt), "no error");  // not known
}

TEST(RunMemory, ARunThatIsPredictedNotToFitItsGpuIsToldWhatWould) {
  config::Config config = long_micro_steps();
  const plan::MemoryParts memory = predict_memory(config, kGpu, 1);
  const double there = 0.6 * memory.total();
  EXPECT_THAT(refusal(config, kGpu, there),
              AllOf(HasSubstr("the run does not fit"), HasSubstr(memory_in_words(memory)),
                    HasSubstr(format_bytes(there)), HasSubstr("--training.micro_steps 2 ("),
                    HasSubstr("--training.recompute blocks ("), HasSubstr("more workers")));
  config.training.micro_steps = 2;
  EXPECT_EQ(refusal(config, kGpu, there), "no error");
  config = long_micro_steps();
  config.training.recompute = config::Recompute::kBlocks;
  EXPECT_EQ(refusal(config, kGpu, there), "no error");
}

TEST(RunMemory, MicroStepsThatCannotBeShorterAreNotProposed) {
  config::Config config = long_micro_steps();
  config.training.micro_steps = 64;
  const double there = 0.86 * predict_memory(config, kGpu, 1).total();
  EXPECT_THAT(refusal(config, kGpu, there),
              AllOf(HasSubstr("the run does not fit"), Not(HasSubstr("micro_steps"))));
}

TEST(RunMemory, WhatMayJustFitIsNotRefused) {
  const double needed = predict_memory(long_micro_steps(), kGpu, 1).total();
  EXPECT_EQ(refusal(long_micro_steps(), kGpu, needed / 1.14), "no error");
  EXPECT_THAT(refusal(long_micro_steps(), kGpu, needed / 1.16), HasSubstr("the run does not fit"));
}

TEST(RunMemory, WeightsGradientsAndMomentsMustFitEverywhere) {
  for (const model::ComputePlace& place : {kGpu, model::ComputePlace{}}) {
    const plan::MemoryParts memory = predict_memory(long_micro_steps(), place, 1);
    const double parameters = memory.weights + memory.gradients + memory.optimizer;
    EXPECT_THAT(refusal(long_micro_steps(), place, 0.99 * parameters),
                HasSubstr("the model does not fit"));
  }
}

TEST(RunMemory, ACpuMayHaveMoreThanItsMachineSays) {
  const double needed = predict_memory(long_micro_steps(), model::ComputePlace{}, 1).total();
  EXPECT_EQ(refusal(long_micro_steps(), model::ComputePlace{}, needed / 1.49), "no error");
}

TEST(RunMemory, ARunFarBeyondTheMachineIsRefusedOnACpuToo) {
  const plan::MemoryParts memory = predict_memory(long_micro_steps(), model::ComputePlace{}, 1);
  EXPECT_THAT(refusal(long_micro_steps(), model::ComputePlace{}, memory.total() / 1.51),
              AllOf(HasSubstr("the run does not fit"), HasSubstr(memory_in_words(memory)),
                    HasSubstr("--training.micro_steps 2 (")));
}

TEST(RunMemory, ThePeakGrowsByWhatIsTaken) {
  const RunMemory memory{model::ComputePlace{}};
  const double before = memory.peak();
  constexpr size_t kBytes = 64 << 20;
  { const std::vector<char> taken(kBytes, 'x'); }
  // Whole pages, less those of freed memory that it may have been given.
  EXPECT_GE(memory.peak(), before + 0.5 * kBytes);
  const double now = memory.now();  // before the peak is asked for, which takes some, too
  EXPECT_LE(now, memory.peak());
}

}  // namespace
}  // namespace ballast::training
