// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/trainer.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ballast/step/step_clock.h"
#include "ballast/system/random.h"
#include "cli/bench/median.h"

namespace ballast::cli {

training::Trainer make_bench_trainer(const config::Config& config, const model::ComputePlace& place,
                                     const comm::WorkerGrid& grid) {
  RandomStream random(1, "bench");
  const auto vocabulary = static_cast<uint64_t>(config.model.vocabulary);
  std::vector<int64_t> tokens(
      static_cast<size_t>(config.training.batch * config.model.context * 8 + 1));
  for (int64_t& token : tokens) token = static_cast<int64_t>(random.below(vocabulary));
  config::Config unwatched = config;
  unwatched.training.log_every = std::numeric_limits<int64_t>::max();  // steps that log also wait
  return training::Trainer(
      unwatched, place,
      {{tokens::tokens_in_memory(std::move(tokens), {.name = "random tokens", .format = "memory"}),
        1.0}},
      grid);
}

int64_t warm_up_steps(int64_t steps) {
  constexpr int64_t kFewest = 5;
  return std::max(steps, kFewest);
}

double optimizer_seconds(training::Trainer& trainer) {
  std::vector<double> seconds(kClockedSteps, 0);
  for (double& of_step : seconds) {
    step::StepClock clock(trainer.place().device);
    clock.start();
    trainer.step(&clock);
    clock.stop();
    for (const step::PartSeconds& part : clock.read())
      if (part.part == step::StepPart::kOptimizer) of_step += part.seconds;
  }
  return median(seconds);
}

}  // namespace ballast::cli
