// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ballast::plan {

// What a GPU can do, or a machine's CPU. docs/plan.md says where each number comes from.
struct Device {
  std::string name;             // "v100"
  double matrix_flops = 0;      // operations a second of matrix products: its maker's data sheet
  double efficiency = 1;        // the share of that which products reach
  double attention_rate = 1;    // products of queries, keys and values reach this share of that
  double memory_bandwidth = 0;  // bytes a second: the data sheet
  double bandwidth_share = 1;   // the share of that which passes over memory reach
  double launch = 0;            // seconds that starting an operation costs
  bool fused = false;           // it has the kernels that make several operations one
  double memory = 0;            // bytes; 0: not known
  double link_bandwidth = 0;    // bytes a second from a worker to all others of its machine, and
  double pair_bandwidth = 0;    // to one of them
  int64_t working = 2;          // bytes of a number as the model computes with it
  int64_t master = 4;           // and as weights are kept
  double assignment = 0;        // seconds of a balanced assignment, and
  double assignment_pair = 0;   // more for each pair of a token and an expert

  bool is_cpu() const { return name == "cpu"; }
  double matrix_rate() const { return matrix_flops * efficiency; }
  double pass_rate() const { return memory_bandwidth * bandwidth_share; }
};

// "cpu" among them, whose rates are 0 until they are measured (measured_bandwidth.h) or given.
std::vector<std::string> device_names();
Device find_device(const std::string& name);  // UserError lists the names

}  // namespace ballast::plan
