// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ballast/system/error.h"

namespace ballast {

// What a call is for, in messages: {"experts", 6}. `purpose` is a literal.
struct Label {
  const char* purpose;
  int layer = -1;  // -1: of no layer
};

enum class Reduction { kSum, kMax };  // kMax: a NaN anywhere gives NaN everywhere

// A worker did not come, or is gone: naming worker, call, label, sizes and who is missing. The job
// must end (World::abort); started again, it may go well.
class WorkersLost : public UserError {
 public:
  using UserError::UserError;
};

// A collective that has begun; made by the engines.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void wait() = 0;
  virtual bool done() = 0;
};

// What a begin_...() returns. The call's tensors must not be touched until wait(). An object that
// is destroyed before lets the call go on, and keeps its tensors until it has ended.
class Pending {
 public:
  Pending() = default;  // has ended
  explicit Pending(std::unique_ptr<Operation> operation);

  // Returns when the results may be used: by the host, or for CUDA by work that is queued on the
  // current stream after. Again is free. WorkersLost: the deadline has passed or a worker is gone.
  void wait();
  // Whether wait() would return at once; moves the call on.
  bool done();

 private:
  std::unique_ptr<Operation> operation_;
};

// How a tensor is cut along its rows: `rows[r]` of them for worker r, in order; zeros are fine.
using RowsOfWorker = std::vector<int64_t>;

// A group of workers that exchange tensors. One interface for all engines: a world of one, MPI,
// later NCCL.
//
// Collective: all workers of the group make the same calls in the same order, begin_...() or not;
// waits may come in any order. Tensors are defined and contiguous, on the CPU or on the engine's
// device. They are written as they are, past autograd (collectives.h has gradients). Any type can
// be moved; float64, float32, bfloat16, float16, int64, int32, uint8 can be reduced (half precision
// is summed in float32 and rounded once). All workers get the same bits of a reduction. UserError
// at once, on this worker: tensors or rows that do not fit.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // "all workers", or what split() was told

  // The workers with the same color (>= 0), ordered by key, then by rank here. `name` is for
  // messages. What was split off may outlive this object, not the World.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;

  // In place: `values` becomes the sum or maximum over all workers.
  Pending begin_all_reduce(const at::Tensor& values, Reduction reduction, Label label);
  // input [N * n] in all, output [n]: worker r gets block r of the reduction. The output may be
  // that block of the input.
  Pending begin_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                               Reduction reduction, Label label);
  // input [n], output [N * n]: the inputs in the order of workers. The input may be this worker's
  // block of the output.
  Pending begin_all_gather(const at::Tensor& output, const at::Tensor& input, Label label);
  // input [rows[rank()], ...], output [sum of rows, ...].
  Pending begin_all_gather_uneven(const at::Tensor& output, const at::Tensor& input,
                                  const RowsOfWorker& rows, Label label);
  // input and output [N * n]: block r of the input goes to worker r, and block s of the output came
  // from worker s. They must not overlap.
  Pending begin_all_to_all(const at::Tensor& output, const at::Tensor& input, Label label);
  // input [sum of send, ...], output [sum of receive, ...]. REQUIRES: receive[s] here is
  // send[rank()] on worker s, as exchange_rows() gives it.
  Pending begin_all_to_all_uneven(const at::Tensor& output, const at::Tensor& input,
                                  const RowsOfWorker& send, const RowsOfWorker& receive,
                                  Label label);
  // In place: the values of worker `root` become everyone's.
  Pending begin_broadcast(const at::Tensor& values, int root, Label label);
  Pending begin_barrier(Label label);

  // The same, and waited for.
  void all_reduce(const at::Tensor& values, Reduction reduction, Label label);
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, Reduction reduction,
                      Label label);
  void all_gather(const at::Tensor& output, const at::Tensor& input, Label label);
  void all_gather_uneven(const at::Tensor& output, const at::Tensor& input,
                         const RowsOfWorker& rows, Label label);
  void all_to_all(const at::Tensor& output, const at::Tensor& input, Label label);
  void all_to_all_uneven(const at::Tensor& output, const at::Tensor& input,
                         const RowsOfWorker& send, const RowsOfWorker& receive, Label label);
  void broadcast(const at::Tensor& values, int root, Label label);
  void barrier(Label label);

  // What each worker will send to this one, where this one sends send[r] rows to worker r.
  RowsOfWorker exchange_rows(const RowsOfWorker& send, Label label);

 protected:
  Communicator(int rank, int size, std::string name);

  // A call as messages tell it. Refers to the caller's tensors: for the start_... alone.
  struct Call {
    const char* name;  // "all_to_all"
    Label label;
    const at::Tensor* from = nullptr;  // null: none
    const at::Tensor* to = nullptr;    // null: in place
    // "all_to_all (experts, layer 6) of float32 [96, 32] to float32 [80, 32]"
    std::string text() const;
  };
  // Blocks of `unit` elements, counts[r] of them for worker r.
  struct Blocks {
    int64_t unit = 0;
    std::vector<int64_t> counts;
  };

  // The engine's part; all arguments have been checked.
  virtual Pending start_all_reduce(const Call& call, const at::Tensor& values,
                                   Reduction reduction) = 0;
  virtual Pending start_reduce_scatter(const Call& call, const at::Tensor& output,
                                       const at::Tensor& input, Reduction reduction) = 0;
  virtual Pending start_all_gather(const Call& call, const at::Tensor& output,
                                   const at::Tensor& input, Blocks blocks) = 0;
  virtual Pending start_all_to_all(const Call& call, const at::Tensor& output,
                                   const at::Tensor& input, Blocks send, Blocks receive) = 0;
  virtual Pending start_broadcast(const Call& call, const at::Tensor& values, int root) = 0;
  virtual Pending start_barrier(const Call& call) = 0;

 private:
  const int rank_, size_;
  const std::string name_;
};

// "all_to_all (experts, layer 6)"
std::string describe(const char* call, const Label& label);

}  // namespace ballast
