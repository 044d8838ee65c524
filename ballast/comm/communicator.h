// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ballast/comm/engine.h"

namespace ballast::comm {

// How a tensor is cut along its rows: `rows[r]` of them for worker r, in order; zeros are fine.
using RowsOfWorker = std::vector<int64_t>;

// A group of workers that exchange tensors. One interface for all engines: a world of one, MPI,
// and NCCL for tensors on GPUs.
//
// Collective: all workers of the group make the same calls in the same order; waits for those that
// were only begun may come in any order. Tensors are defined and contiguous, on the CPU or on the
// worker's GPU. They are written as they are, past autograd (collectives.h has gradients). Any type
// can be moved; float64, float32, bfloat16, float16, int64, int32, uint8 can be reduced (half
// precision is summed in float32 and rounded once). All workers get the same bits of a reduction.
// UserError at once, on this worker: tensors or rows that do not fit.
class Communicator : protected Engine {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // "all workers", or what split() was told
  // The numbers that the group's workers have among all workers, in the order of the group.
  const std::vector<int>& members() const { return members_; }

  // The workers with the same color (>= 0), ordered by key, then by rank here. `name` is for
  // messages. What was split off may outlive this object, not the World.
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name);

  // In place: `values` becomes the sum or maximum over all workers.
  void all_reduce(const at::Tensor& values, Reduction reduction, Label label);
  // input [N * n] in all, output [n]: worker r gets block r of the reduction. The output may be
  // that block of the input.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, Reduction reduction,
                      Label label);
  // input [n], output [N * n]: the inputs in the order of workers. The input may be this worker's
  // block of the output.
  void all_gather(const at::Tensor& output, const at::Tensor& input, Label label);
  // input [rows[rank()], ...], output [sum of rows, ...].
  void all_gather_uneven(const at::Tensor& output, const at::Tensor& input,
                         const RowsOfWorker& rows, Label label);
  // input and output [N * n]: block r of the input goes to worker r, and block s of the output came
  // from worker s. They must not overlap.
  void all_to_all(const at::Tensor& output, const at::Tensor& input, Label label);
  // input [sum of send, ...], output [sum of receive, ...]. REQUIRES: receive[s] here is
  // send[rank()] on worker s.
  void all_to_all_uneven(const at::Tensor& output, const at::Tensor& input,
                         const RowsOfWorker& send, const RowsOfWorker& receive, Label label);
  // In place: the values of worker `root` become everyone's.
  void broadcast(const at::Tensor& values, int root, Label label);
  void barrier(Label label);

  // The same, not waited for.
  Pending begin_all_reduce(const at::Tensor& values, Reduction reduction, Label label);
  Pending begin_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                               Reduction reduction, Label label);
  Pending begin_all_to_all(const at::Tensor& output, const at::Tensor& input, Label label);
  // Waits for what begin_all_to_all() returned. The time counts in take_all_to_all_seconds().
  void finish_all_to_all(Pending& begun, Label label);

  // From now on `engine` moves tensors on GPUs, here and in what is split off. For World only.
  void use_gpu_engine(std::unique_ptr<GpuEngine> engine);
  GpuEngine* gpu_engine() const { return gpu_engine_.get(); }  // null: none

  // Whether calls with tensors on GPUs can be part of a graph (kernels/gpu_graph.h): where the host
  // has no part in them.
  bool can_record() const { return gpu_engine_ != nullptr || leaves_out_the_host(); }
  // Does `work`, which records a graph with calls of this group and of what was split off from it.
  // None of them runs, and each is waited for before the recording ends. Collective: NCCL may wait
  // for others meanwhile. A worker that fails throws alone, so all must agree on it afterwards.
  // REQUIRES: can_record(), the same calls have run before, and the graph is gone before the World.
  void record(const std::function<void()>& work, Label label);
  // Does `work`, which queues that graph on the current stream. For deadlines and messages it is
  // one call, which lasts until the device has done it. Collective.
  void replay(const std::function<void()>& work, Label label);

  // Seconds this worker has spent in all_to_all(), all_to_all_uneven() and finish_all_to_all() with
  // labels of a layer since the last call, waiting for others included. Under NCCL it is the host's
  // time only; calls within a graph count nothing.
  double take_all_to_all_seconds(int layer);

 protected:
  Communicator(int rank, std::vector<int> members, std::string name);

  // The engine's part, of checked arguments.
  virtual std::unique_ptr<Communicator> start_split(int color, int key,
                                                    const std::string& name) = 0;
  virtual Pending start_barrier(const Call& call) = 0;
  // Whether tensors on GPUs stay there.
  virtual bool leaves_out_the_host() const { return false; }

 private:
  Engine& engine_of(const at::Tensor& x);
  void count_seconds(const std::function<void()>& work, Label label);

  const int rank_;
  const std::vector<int> members_;
  const int size_;
  const std::string name_;
  std::map<int, double> all_to_all_seconds_;  // by layer
  std::unique_ptr<GpuEngine> gpu_engine_;  // null: the host's engine takes tensors of all devices
};

// "all_to_all (experts, layer 6)"
std::string describe(const char* call, const Label& label);

}  // namespace ballast::comm
