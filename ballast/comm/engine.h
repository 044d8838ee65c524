// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::comm {

// What a call is for, in messages: {"experts", 6}. `purpose` is a literal.
struct Label {
  const char* purpose;
  int layer = -1;  // -1: of no layer
};

enum class Reduction { kSum, kMax };  // kMax: a NaN anywhere gives NaN everywhere

// A worker did not come, or is gone. The message names worker, call, label, sizes and who is
// missing. The job must end (World::abort); started again, it may go well.
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

// What a begin_...() returns. The call's tensors must not be touched until wait(). If it is
// destroyed before, the call goes on, and its tensors are kept until it has ended.
class Pending {
 public:
  Pending() = default;  // has ended
  explicit Pending(std::unique_ptr<Operation> operation);

  // Returns when the results may be used: by the host, or on CUDA by work that is queued on the
  // current stream afterwards. A second call costs nothing. WorkersLost: the deadline has passed or
  // a worker is gone.
  void wait();
  // Whether wait() would return at once; moves the call on.
  bool done();

 private:
  std::unique_ptr<Operation> operation_;
};

// What moves a group's tensors: a world of one, MPI, NCCL. For Communicator alone, which has
// checked all arguments.
class Engine {
 public:
  virtual ~Engine() = default;

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

  virtual Pending start_all_reduce(const Call& call, const at::Tensor& values,
                                   Reduction reduction) = 0;
  virtual Pending start_reduce_scatter(const Call& call, const at::Tensor& output,
                                       const at::Tensor& input, Reduction reduction) = 0;
  virtual Pending start_all_gather(const Call& call, const at::Tensor& output,
                                   const at::Tensor& input, Blocks blocks) = 0;
  virtual Pending start_all_to_all(const Call& call, const at::Tensor& output,
                                   const at::Tensor& input, Blocks send, Blocks receive) = 0;
  virtual Pending start_broadcast(const Call& call, const at::Tensor& values, int root) = 0;
};

class Communicator;

// An engine for tensors on GPUs, beside that for the host's.
class GpuEngine : public Engine {
 public:
  // Collective in `part`, a part of this group: the engine for it.
  virtual std::unique_ptr<GpuEngine> split(Communicator& part) = 0;
  // Returns when all that has begun has ended on the device. WorkersLost: see Pending::wait().
  virtual void finish() = 0;
  // Communicator's functions of these names.
  virtual void record(const Call& call, const std::function<void()>& work) = 0;
  virtual void replay(const Call& call, const std::function<void()>& work) = 0;
};

}  // namespace ballast::comm
