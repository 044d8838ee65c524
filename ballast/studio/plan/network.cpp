// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/network.h"

#include <algorithm>
#include <bit>
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

// OpenMPI sends so many bytes unasked; of more, the rest goes when the receiver has answered.
constexpr double kUnaskedBytes = 65536;

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

double Wires::start_of_message(double bytes) const {
  return (bytes > kUnaskedBytes ? 3 : 1) * network.latency;
}

double Wires::all_reduce_by_mpi(double bytes, const GroupOnNetwork& group) const {
  // A half, a quarter and so on of the numbers are exchanged and summed, then the sums come back.
  // Workers of a machine are neighbours, and so the first partners.
  const double beside = static_cast<double>(group.side_by_side);
  double seconds = 0, part = bytes;
  for (int64_t apart = 1; 2 * apart <= group.size; apart *= 2) {
    part /= 2;
    const bool within = apart < group.in_machine;
    seconds += within ? part / pair_bandwidth + network.machine_latency
                      : part * static_cast<double>(group.in_machine) * beside / network.bandwidth +
                            start_of_message(part);
  }
  seconds *= 2;
  // Those beyond a power of two give all they have to a neighbour first, and get the sums last.
  if (std::has_single_bit(static_cast<uint64_t>(group.size))) return seconds;
  return seconds + 2 * (group.in_machine > 1
                            ? bytes / pair_bandwidth + network.machine_latency
                            : bytes * beside / network.bandwidth + start_of_message(bytes));
}

double Wires::all_reduce(double bytes, const GroupOnNetwork& group) const {
  if (group.size == 1) return 0;
  if (transport == Transport::kMpi) return all_reduce_by_mpi(bytes, group);
  const double hops = 2 * std::log2(static_cast<double>(group.size));
  const double sent = steps_of_ring(group) * bytes;
  if (!leaves_machine(group)) return sent / link(group) + hops * network.machine_latency;
  // A ring enters and leaves each machine once, whatever number of its workers it visits.
  return sent * static_cast<double>(group.side_by_side) / network.bandwidth +
         hops * network.latency;
}

double Wires::reduce_scatter(double bytes, const GroupOnNetwork& group) const {
  if (group.size == 1) return 0;
  if (transport != Transport::kMpi) return all_reduce(bytes, group) / 2;
  const auto size = static_cast<double>(group.size), here = static_cast<double>(group.in_machine);
  const double beside = static_cast<double>(group.side_by_side);
  double seconds = 0;
  for (int64_t apart = 1; apart < group.size; apart *= 2) {
    seconds += apart < group.in_machine
                   ? bytes / pair_bandwidth + network.machine_latency
                   : bytes * beside / network.bandwidth + start_of_message(bytes);
  }
  if (!leaves_machine(group)) return seconds + bytes * (size - 1) / size / link(group);
  return seconds + bytes * (size - here) / size * beside / network.bandwidth +
         start_of_message(bytes / size);
}

double Wires::all_to_all_within(double bytes, const GroupOnNetwork& group) const {
  const auto others = static_cast<double>(group.in_machine - 1);
  if (others == 0) return 0;
  return bytes * others / static_cast<double>(group.size) / link(group) +
         others * network.machine_latency;
}

double Wires::all_to_all(double bytes, const GroupOnNetwork& group) const {
  const auto size = static_cast<double>(group.size), here = static_cast<double>(group.in_machine);
  const double within = all_to_all_within(bytes, group);
  if (!leaves_machine(group)) return within;
  const double out = bytes * (size - here) / size * here * static_cast<double>(group.side_by_side);
  // OpenMPI begins all messages at once.
  const double starts = transport == Transport::kMpi ? start_of_message(bytes / size)
                                                     : (size - here) * network.latency;
  return within + out / network.bandwidth + starts;
}

double Wires::all_to_all_in_hops(double bytes, const GroupOnNetwork& group) const {
  if (!leaves_machine(group) || group.in_machine == 1) return all_to_all(bytes, group);
  const GroupOnNetwork machine{.size = group.in_machine, .in_machine = group.in_machine};
  const GroupOnNetwork of_place{.size = group.size / group.in_machine,
                                .in_machine = 1,
                                .side_by_side = group.in_machine * group.side_by_side};
  return all_to_all(bytes, machine) + all_to_all(bytes, of_place);
}

double Wires::all_gather(double bytes, const GroupOnNetwork& group) const {
  if (group.size == 1) return 0;
  const auto others = static_cast<double>(group.size - 1);
  if (!leaves_machine(group))
    return others * bytes / link(group) + others * network.machine_latency;
  const double beside = static_cast<double>(group.side_by_side);
  if (transport == Transport::kMpi) {
    // Each worker of a machine gets everything for itself, all messages at once.
    const auto here = static_cast<double>(group.in_machine);
    return here * (others + 1 - here) * bytes * beside / network.bandwidth +
           start_of_message(bytes);
  }
  return others * bytes * beside / network.bandwidth + others * network.latency;
}

}  // namespace ballast::plan
