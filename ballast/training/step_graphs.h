// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/kernels/gpu_graph.h"
#include "ballast/step/step_inputs.h"
#include "ballast/training/step_totals.h"

namespace ballast::training {

enum class StepKind {
  kUsual,
  kClocked,  // the time of its parts is taken
  kWatched,  // somebody on the host is told of its parts: computed plainly
};

// Runs steps. The first few are computed plainly. On a GPU the others replay a graph that was
// recorded from one step. The numbers are the same. Steps of a kind queue the same work, on the
// same memory. All workers run steps of the same kinds in the same order, and decide alike: none
// replays a step that another computes plainly.
class StepGraphs {
 public:
  // `reason`: why steps are not to be recorded; empty: they are. `workers`: who compute a step
  // together; they outlive this.
  StepGraphs(std::string reason, comm::Communicator& workers)
      : reason_(std::move(reason)), workers_(workers) {}

  // Runs `step`, counted from 0, and returns what compute() returned; the next run() overwrites it.
  // Nothing waits for the GPU. A step that turns out not to be recordable on some worker is
  // computed plainly by all, and so are all after it. WorkersLost: NCCL itself failed meanwhile.
  const StepSums& run(StepKind kind, uint64_t step, step::StepInputs& inputs,
                      const std::function<StepSums()>& compute);

  // Why steps are computed plainly; empty: they are recorded, or will be.
  const std::string& reason() const { return reason_; }
  void give_up(std::string reason) { reason_ = std::move(reason); }

 private:
  struct Recorded {
    std::unique_ptr<kernels::GpuGraph> graph;
    StepSums sums;
  };

  const StepSums& run_plainly(uint64_t step, step::StepInputs& inputs,
                              const std::function<StepSums()>& compute);
  bool record(Recorded& recorded, step::StepInputs& inputs,
              const std::function<StepSums()>& compute);
  // Why a worker could not record; empty: all could. Collective.
  std::string trouble_of_workers(const std::string& own);

  std::string reason_;
  comm::Communicator& workers_;
  int64_t plain_steps_ = 0;
  StepSums plain_;
  std::array<Recorded, 2> recorded_;
};

}  // namespace ballast::training
