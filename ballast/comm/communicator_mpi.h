// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/comm/runtime_mpi.h"

namespace ballast::comm {

// Collectives over OpenMPI, begun with its nonblocking calls. Tensors on a GPU go through pinned
// host memory.
class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm, WorkerGroup group);

 protected:
  std::unique_ptr<Communicator> start_split(int color, int key, const std::string& name) override;
  Pending start_all_reduce(const Call& call, const at::Tensor& values,
                           Reduction reduction) override;
  Pending start_reduce_scatter(const Call& call, const at::Tensor& output, const at::Tensor& input,
                               Reduction reduction) override;
  Pending start_all_gather(const Call& call, const at::Tensor& output, const at::Tensor& input,
                           Blocks blocks) override;
  Pending start_all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                           Blocks send, Blocks receive) override;
  Pending start_broadcast(const Call& call, const at::Tensor& values, int root) override;
  Pending start_barrier(const Call& call) override;

 private:
  MpiTransfer transfer(const Call& call);
  template <typename Issue>
  Pending begin(MpiTransfer transfer, Issue issue);

  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm comm_;  // never freed: that is collective, and destructors run in any order
  std::shared_ptr<const WorkerGroup> group_;
  uint64_t calls_ = 0;
};

}  // namespace ballast::comm
