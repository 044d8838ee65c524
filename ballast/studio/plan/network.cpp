// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/network.h"

#include <algorithm>
#include <cmath>

#include "ballast/studio/plan/find_named.h"

namespace ballast::plan {
namespace {

// Fitted to the paper's table (tests/plan/paper_table_test.cpp).
constexpr double kPaperBandwidth = 16.1e9, kPaperLatency = 1.8e-6;
constexpr double kMachineLatency = 5e-6;

std::vector<Network> all_networks() {
  return {{"infiniband", 8, kPaperBandwidth, kPaperLatency, kMachineLatency},
          {"nvlink", 0, 0, 0, kMachineLatency},
          {"ethernet", 8, 2.5e9, 50e-6, kMachineLatency}};
}

double steps_of_ring(const GroupOnNetwork& group) {
  return 2 * static_cast<double>(group.size - 1) / static_cast<double>(group.size);
}

bool leaves_machine(const GroupOnNetwork& group) { return group.size > group.in_machine; }

}  // namespace

std::vector<std::string> network_names() { return names_of(all_networks()); }

Network find_network(const std::string& name) {
  return find_named(all_networks(), name, "--network");
}

double Wires::link(const GroupOnNetwork& group) const {
  return std::min(link_bandwidth, static_cast<double>(group.in_machine - 1) * pair_bandwidth);
}

double Wires::all_reduce(double bytes, const GroupOnNetwork& group) const {
  if (group.size == 1) return 0;
  const double hops = 2 * std::log2(static_cast<double>(group.size));
  const double sent = steps_of_ring(group) * bytes;
  if (!leaves_machine(group)) return sent / link(group) + hops * network.machine_latency;
  // A ring enters and leaves each machine once, whatever number of its workers it visits.
  return sent * static_cast<double>(group.side_by_side) / network.bandwidth +
         hops * network.latency;
}

double Wires::all_to_all(double bytes, const GroupOnNetwork& group) const {
  const auto size = static_cast<double>(group.size), here = static_cast<double>(group.in_machine);
  const double within =
      here > 1 ? bytes * (here - 1) / size / link(group) + (here - 1) * network.machine_latency : 0;
  if (!leaves_machine(group)) return within;
  const double out = bytes * (size - here) / size * here * static_cast<double>(group.side_by_side);
  return within + out / network.bandwidth + (size - here) * network.latency;
}

double Wires::all_gather(double bytes, const GroupOnNetwork& group) const {
  if (group.size == 1) return 0;
  const auto others = static_cast<double>(group.size - 1);
  if (!leaves_machine(group))
    return others * bytes / link(group) + others * network.machine_latency;
  return others * bytes * static_cast<double>(group.side_by_side) / network.bandwidth +
         others * network.latency;
}

}  // namespace ballast::plan
