// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/run_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/kernels/cuda_driver.h"
#include "ballast/kernels/gpu_graph.h"
#include "ballast/record/hardware.h"
#include "ballast/studio/plan/device.h"
#include "ballast/studio/plan/work.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"
#include "ballast/training/compute_rate.h"

namespace ballast::training {
namespace {

// The change and what is then predicted, "" where that does not fit.
std::string proposed(const std::string& change, const config::Config& config,
                     const model::ComputePlace& place, int64_t workers, double there) {
  const double total = predict_memory(config, place, workers).total();
  return total <= there ? fmt::format("{} ({}), ", change, format_bytes(total)) : "";
}

// Blocks that are computed again; the longest of the shorter micro-steps.
std::string what_would_fit(const config::Config& config, const model::ComputePlace& place,
                           int64_t workers, double there) {
  config::Config changed = config;
  changed.training.recompute = config::Recompute::kBlocks;
  std::string words = proposed("--training.recompute blocks", changed, place, workers, there);
  changed = config;
  config::TrainingConfig& t = changed.training;
  const int64_t replicas = workers / t.model_parallel;
  for (t.micro_steps *= 2; t.batch % (t.micro_steps * replicas) == 0; t.micro_steps *= 2) {
    const std::string steps = proposed(fmt::format("--training.micro_steps {}", t.micro_steps),
                                       changed, place, workers, there);
    if (!steps.empty()) return words + steps;
  }
  return words;
}

double resident_peak() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kilobytes = 0;
    if (word == "VmHWM:" && file >> kilobytes) return 1024 * kilobytes;
  }
  return 0;
}

}  // namespace

plan::MemoryParts predict_memory(const config::Config& config, const model::ComputePlace& place,
                                 int64_t workers) {
  plan::Device device;
  device.name = place.device.is_cpu() ? "cpu" : "gpu";
  device.working = static_cast<int64_t>(c10::elementSize(place.working));
  device.master = static_cast<int64_t>(c10::elementSize(place.master));
  return plan::memory_of(plan::LayoutShape(config, workers, device), device);
}

std::string memory_in_words(const plan::MemoryParts& memory) {
  return fmt::format("{} (weights {}, gradients {}, optimizer {}, activations {}, buffers {})",
                     format_bytes(memory.total()), format_bytes(memory.weights),
                     format_bytes(memory.gradients), format_bytes(memory.optimizer),
                     format_bytes(memory.activations), format_bytes(memory.buffers));
}

std::optional<double> memory_for(const model::ComputePlace& place,
                                 const comm::PlaceOnMachine& worker) {
  if (place.device.is_cpu()) {
    const nlohmann::json memory = record::describe_hardware().at("memory_bytes");
    if (memory.is_null()) return std::nullopt;
    return memory.get<double>() / worker.workers;
  }
  const std::vector<kernels::CudaDevice> devices = kernels::query_cuda_driver().devices;
  const auto index = static_cast<size_t>(place.device.index());
  if (index >= devices.size()) return std::nullopt;
  return static_cast<double>(devices[index].memory_bytes);
}

// The peaks of six dense and BASE models on a GPU were 1 to 6 % above what was predicted
// (docs/profiling.md); gates, shards and recomputed blocks have not been compared there.
constexpr double kSurelyTooMuchOfAGpu = 1.15;
// On a CPU they were 10 % apart, and swap space or a smaller heap may hold the rest of some.
constexpr double kSurelyTooMuchOfAMachine = 1.5;

void check_memory(const config::Config& config, const model::ComputePlace& place, int64_t workers,
                  std::optional<double> there) {
  if (!there) return;
  const plan::MemoryParts memory = predict_memory(config, place, workers);
  const double parameters = memory.weights + memory.gradients + memory.optimizer;
  if (parameters > *there) {
    fail(
        "the model does not fit: weights, gradients and moments of a worker take {}, of {} that it "
        "has; more workers, or a smaller model (--scale of a preset), would do; `ballast params` "
        "tells",
        format_bytes(parameters), format_bytes(*there));
  }
  if (memory.total() <= *there) return;
  const bool is_cpu = place.device.is_cpu();
  const std::string numbers =
      fmt::format("a worker is predicted to take {}, of {} that {} has", memory_in_words(memory),
                  format_bytes(*there), is_cpu ? "it" : "its GPU");
  if (memory.total() <= (is_cpu ? kSurelyTooMuchOfAMachine : kSurelyTooMuchOfAGpu) * *there) {
    log_warning("{}: it may not fit", numbers);
    return;
  }
  fail(
      "the run does not fit: {}; {}a smaller training.batch, {}or a smaller model (--scale of a "
      "preset) would do; `ballast plan` tells",
      numbers, what_would_fit(config, place, workers, *there), is_cpu ? "" : "more workers, ");
}

RunMemory::RunMemory(const model::ComputePlace& place) : place_(place) {
  if (!place.device.is_cpu()) return;
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew, where that is allowed
  before_ = static_cast<double>(memory_in_use(place));
}

double RunMemory::now() const {
  return std::max(0.0, static_cast<double>(memory_in_use(place_)) - before_);
}

double RunMemory::peak() const {
  if (!place_.device.is_cpu())
    return static_cast<double>(kernels::gpu_memory(place_.device).peak_bytes);
  return std::max(0.0, resident_peak() - before_);
}

}  // namespace ballast::training
