// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

class RollCall;

// This worker among those on the same machine. Threads and GPUs are shared out by it.
struct PlaceOnMachine {
  int index = 0;
  int workers = 1;
};

// How tensors on GPUs go from worker to worker.
enum class GpuTransport {
  kAuto,  // NCCL where every worker has a GPU of its own, else MPI
  kMpi,   // through host memory: workers can share a GPU
  kNccl,  // from GPU to GPU
};

// All workers of a job, from its start to its end. A program has one, opened before any thread.
class World {
 public:
  // Without close() before, leaves the others without a word: a worker that unwinds must not wait.
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  virtual Communicator& everyone() = 0;
  virtual PlaceOnMachine place() const = 0;

  // Tells where this worker computes. Collective, before tensors on a GPU are exchanged; a second
  // call costs nothing. everyone() stays the same object, and moves tensors on GPUs as
  // WorldOptions::gpus wishes. SharedError: that is NCCL, but a worker has no GPU, or none of its
  // own, or there is no NCCL.
  void compute_on(at::Device device);
  // How tensors go from worker to worker, for people: "nowhere", "MPI", "NCCL 2.28.9".
  const std::string& transport() const { return transport_; }

  // The end where all went well; collective. Nothing of this world may be used after.
  // WorkersLost: a worker did not come, as in Pending::wait().
  void close();
  // The end where something went wrong: ends all workers of the job at once, this one too, with
  // `code`. A world of one has no others and returns. For main, after it has printed what happened.
  virtual void abort(int code) noexcept = 0;

 protected:
  World(GpuTransport wish, std::string transport) : wish_(wish), transport_(std::move(transport)) {}
  virtual void close_host() = 0;
  virtual std::shared_ptr<RollCall> roll_call() = 0;

 private:
  const GpuTransport wish_;
  std::string transport_;
  bool placed_ = false;
};

// The GPU of a worker, where its machine has `gpus` of them: they are dealt out in turn.
inline at::Device gpu_of(const PlaceOnMachine& place, int gpus) {
  return {at::kCUDA, static_cast<c10::DeviceIndex>(place.index % gpus)};
}

enum class WorldKind {
  kAuto,    // MPI where mpirun or srun started several of us, else a world of one
  kSingle,  // a world of one
  kMpi,     // MPI, also for a world of one
};

struct WorldOptions {
  WorldKind kind = WorldKind::kAuto;
  // The longest a worker waits in one call; where steps are graphs under NCCL, longer than a step.
  double deadline_seconds = 300;
  GpuTransport gpus = GpuTransport::kAuto;
};

// UserError: no MPI here; mpirun or srun started several of us, but MPI does not see them.
std::unique_ptr<World> open_world(const WorldOptions& options);

// How many of this program mpirun, srun or another starter says it has started; 0: none did.
int num_started_workers();

}  // namespace ballast::comm
