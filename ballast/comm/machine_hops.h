// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// What each worker of this machine, in their order, sends to all workers and gets from them.
struct RowsOfMachine {
  std::vector<RowsOfWorker> send, receive;
};

// The numbers of the machines that a group's workers are on, counted in the order of their first
// workers. Collective.
std::vector<int> machines_of(Communicator& workers);

// Rows that travel in two hops: within the machine, to the worker that has the receiver's place
// there; then from machine to machine, between workers of one place. So each worker has one message
// for each other machine, and not one for each worker on it.
class MachineHops {
 public:
  // Whether there are several machines, of several workers each, and as many on all.
  static bool suit(const std::vector<int>& machines);

  // Collective. REQUIRES: suit(machines), one number for each worker; `workers` outlive this.
  MachineHops(Communicator& workers, const std::vector<int>& machines);

  // The workers of this machine, in order.
  const std::vector<int>& neighbours() const { return workers_at_[static_cast<size_t>(machine_)]; }
  // Collective in the machine: what its workers send and get. Waits for the host's messages.
  RowsOfMachine gather(const RowsOfWorker& send, const RowsOfWorker& receive, Label label) const;

  // As all_to_all of collectives.h, of the same rows in the same order, bit for bit; with a
  // gradient. Collective. REQUIRES: receive[s] of a worker is send[it] of s.
  at::Tensor all_to_all(const at::Tensor& x, const RowsOfMachine& rows, Label label) const;

  // Communicator's function of this name, of both hops.
  double take_all_to_all_seconds(int layer) const;

 private:
  friend struct TwoHopsFunction;
  at::Tensor move(const at::Tensor& x, const RowsOfMachine& rows, Label label) const;

  std::vector<std::vector<int>> workers_at_;  // of each machine
  int machine_ = 0;
  size_t place_ = 0;  // of this worker in its machine
  std::unique_ptr<Communicator> within_, between_;
};

// Those of these workers' machines; null where machines do not suit, and rows go straight.
// Collective.
std::shared_ptr<const MachineHops> hops_between_machines(Communicator& workers);

}  // namespace ballast::comm
