// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_graphs.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "ballast/comm/texts.h"
#include "ballast/system/log.h"

namespace ballast::training {
namespace {

// Libraries choose their algorithms and allocate what they keep in the first steps.
constexpr int64_t kPlainSteps = 3;
constexpr comm::Label kStep{"step"};
constexpr const char* kUnknown = "for an unknown reason";

}  // namespace

const StepSums& StepGraphs::run(StepKind kind, uint64_t step, step::StepInputs& inputs,
                                const std::function<StepSums()>& compute) {
  if (!reason_.empty() || kind == StepKind::kWatched || plain_steps_ < kPlainSteps)
    return run_plainly(step, inputs, compute);
  Recorded& recorded = recorded_.at(static_cast<size_t>(kind));
  inputs.fill(step);
  if (recorded.graph == nullptr && !record(recorded, inputs, compute))
    return run_plainly(step, inputs, compute);
  workers_.replay([&] { recorded.graph->replay(); }, kStep);
  return recorded.sums;
}

const StepSums& StepGraphs::run_plainly(uint64_t step, step::StepInputs& inputs,
                                        const std::function<StepSums()>& compute) {
  ++plain_steps_;
  inputs.begin(step);
  plain_ = compute();
  return plain_;
}

bool StepGraphs::record(Recorded& recorded, step::StepInputs& inputs,
                        const std::function<StepSums()>& compute) {
  plain_ = {};
  kernels::release_cached_gpu_memory();  // the graph has memory of its own
  const kernels::GpuGraph* other = nullptr;
  for (const Recorded& one : recorded_) {
    if (one.graph != nullptr) other = one.graph.get();
  }
  auto graph = kernels::make_gpu_graph(other);
  inputs.begin_recording();
  std::string trouble;
  try {
    workers_.record([&] { graph->record([&] { recorded.sums = compute(); }); }, kStep);
  } catch (const comm::WorkersLost&) {
    throw;
  } catch (const std::exception& error) {
    trouble = error.what();
    if (trouble.empty()) trouble = kUnknown;
  } catch (...) {
    trouble = kUnknown;
  }
  reason_ = trouble_of_workers(trouble);
  if (reason_.empty()) {
    recorded.graph = std::move(graph);
    return true;
  }
  recorded_ = {};  // plain steps need the memory
  if (workers_.rank() == 0)
    log_warning("a step cannot be recorded as a graph, and is computed plainly: {}", reason_);
  return false;
}

std::string StepGraphs::trouble_of_workers(const std::string& own) {
  const std::vector<std::string> troubles = comm::gather_texts(workers_, own, {"recording"});
  for (size_t worker = 0; worker < troubles.size(); ++worker) {
    if (!troubles[worker].empty())
      return troubles.size() == 1 ? own : fmt::format("worker {}: {}", worker, troubles[worker]);
  }
  return "";
}

}  // namespace ballast::training
