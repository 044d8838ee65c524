// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/device.h"

#include "ballast/studio/plan/find_named.h"

namespace ballast::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;

// Fitted to the paper's table (tests/plan/paper_table_test.cpp).
constexpr double kPaperEfficiency = 0.486;
// Assumed, of all GPUs (docs/plan.md).
constexpr double kGpuEfficiency = 0.80, kGpuBandwidthShare = 0.9;
// Calibrated on an H200's steps (tests/plan/h200_steps_test.cpp); the first on those of before
// operations were fused.
constexpr double kGpuLaunch = 9.5 * kMicro, kFusedLaunch = 5.5 * kMicro;
// A third of a step's products, those of weights' gradients, reach 190 where the others reach 217.
constexpr double kCpuEfficiency = 0.95;
// Fused attention; a CPU's was 14 % of a step (benchmarks/results/foundation_2026-11-15.md).
constexpr double kGpuAttention = 0.5, kCpuAttention = 0.25;
// Lines through the solver's times, a GPU's with the gap that training allows: docs/plan.md says
// how far they are off. Above 128 experts a GPU takes about four times as long.
constexpr double kGpuAssignment = 60 * kMicro, kGpuAssignmentPair = 20e-12;

Device gpu(const std::string& name, double tera_flops, double giga_bytes, double memory,
           double link, double pair) {
  return {.name = name,
          .matrix_flops = tera_flops * kTera,
          .efficiency = name == "v100" ? kPaperEfficiency : kGpuEfficiency,
          .attention_rate = kGpuAttention,
          .memory_bandwidth = giga_bytes * kGiga,
          .bandwidth_share = kGpuBandwidthShare,
          .launch = name == "v100" ? kGpuLaunch : kFusedLaunch,
          .fused = name != "v100",
          .memory = memory * kGiga,
          .link_bandwidth = link * kGiga,
          .pair_bandwidth = pair * kGiga,
          .assignment = kGpuAssignment,
          .assignment_pair = kGpuAssignmentPair};
}

Device cpu() {
  Device device;
  device.name = "cpu";
  device.efficiency = kCpuEfficiency;
  device.attention_rate = kCpuAttention;
  device.launch = 3 * kMicro;
  device.link_bandwidth = device.pair_bandwidth = 2 * kGiga;
  device.working = 4;
  device.assignment = 200 * kMicro;
  device.assignment_pair = 2.5e-9;
  return device;
}

// Memory as the driver tells it. Eight V100 have no switch: neighbours are joined by one link,
// which was chosen with the paper's table in sight (docs/plan.md).
std::vector<Device> all_devices() {
  return {gpu("v100", 125, 900, 34.1, 120, 20), gpu("a100", 312, 2039, 85.1, 240, 240),
          gpu("h100", 989, 3350, 85.1, 360, 360), gpu("h200", 989, 4800, 150.7, 360, 360), cpu()};
}

}  // namespace

std::vector<std::string> device_names() { return names_of(all_devices()); }

Device find_device(const std::string& name) { return find_named(all_devices(), name, "--device"); }

}  // namespace ballast::plan
