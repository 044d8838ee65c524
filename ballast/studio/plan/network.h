// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ballast::plan {

// What joins the workers. Within a machine of `machine_workers` it is the device's links. Between
// machines it is one adapter (or several, taken together) that the workers of a machine share.
struct Network {
  std::string name;             // "infiniband"
  int64_t machine_workers = 8;  // 0: all in one machine
  double bandwidth = 0;         // bytes a second into and out of a machine
  double latency = 0;           // seconds of a message between machines
  double machine_latency = 0;   // and within one

  bool is_one_machine(int64_t workers) const {
    return machine_workers == 0 || workers <= machine_workers;
  }
  // Of so many workers, how many share a machine.
  int64_t in_machine(int64_t workers) const {
    return is_one_machine(workers) ? workers : machine_workers;
  }
};

std::vector<std::string> network_names();
Network find_network(const std::string& name);  // UserError lists the names

// Some of all workers that act together.
struct GroupOnNetwork {
  int64_t size = 1;
  int64_t in_machine = 1;    // of them, in each machine
  int64_t side_by_side = 1;  // such groups that send through one machine's adapter at once
};

// Who moves tensors: NCCL between GPUs, in rings; OpenMPI through host memory, as its calls that
// are not waited for do it (docs/plan.md).
enum class Transport { kNccl, kMpi };

// Seconds of a call; 0 in a group of one. `bytes`: what one worker holds.
struct Wires {
  Network network;
  double link_bandwidth = 0;  // within a machine, of a worker to all others
  double pair_bandwidth = 0;  // to one of them
  Transport transport = Transport::kNccl;

  // A ring: 2 (n - 1) / n of the bytes through each worker's slowest way. OpenMPI: halves go to
  // partner after partner, those of the own machine first.
  double all_reduce(double bytes, const GroupOnNetwork& group) const;
  // Half of that. OpenMPI: all of it goes to one worker, in a tree, which deals it out.
  double reduce_scatter(double bytes, const GroupOnNetwork& group) const;
  // (n - 1) / n of them; those to other machines share the adapter.
  double all_to_all(double bytes, const GroupOnNetwork& group) const;
  // What of that stays within the machine.
  double all_to_all_within(double bytes, const GroupOnNetwork& group) const;
  // The same in two hops: within the machine, then between workers of one place in their machines.
  double all_to_all_in_hops(double bytes, const GroupOnNetwork& group) const;
  // Each worker gets the others' `bytes`.
  double all_gather(double bytes, const GroupOnNetwork& group) const;

 private:
  // Of a worker to those of its group in its machine.
  double link(const GroupOnNetwork& group) const;
  // Until a message of OpenMPI's between machines begins to flow.
  double start_of_message(double bytes) const;
  double all_reduce_by_mpi(double bytes, const GroupOnNetwork& group) const;
};

}  // namespace ballast::plan
