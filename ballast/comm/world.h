// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "ballast/comm/communicator.h"

namespace ballast {

// This worker among those on the same machine: what threads and GPUs are shared out by.
struct PlaceOnMachine {
  int index = 0;
  int workers = 1;
};

// All workers of a job, from its start to its end. A program has one, opened before any thread.
class World {
 public:
  // Without close() before, leaves the others without a word: a worker that unwinds must not wait.
  virtual ~World() = default;

  virtual Communicator& everyone() = 0;
  virtual PlaceOnMachine place() const = 0;
  // The end where all went well; collective. Nothing of this world may be used after.
  // WorkersLost: a worker did not come, as in Pending::wait().
  virtual void close() = 0;
  // The end where it did not: ends all workers of the job at once, this one too, with `code`. A
  // world of one has no others and returns. For main, after it has printed what happened.
  virtual void abort(int code) noexcept = 0;
};

enum class WorldKind {
  kAuto,    // MPI where mpirun or srun started several of us, else a world of one
  kSingle,  // a world of one
  kMpi,     // MPI, also for a world of one
};

struct WorldOptions {
  WorldKind kind = WorldKind::kAuto;
  double deadline_seconds = 300;  // the longest a worker waits in one call
};

// UserError: no MPI here; mpirun or srun started several of us, but MPI does not see them.
std::unique_ptr<World> open_world(const WorldOptions& options);

// How many of this program mpirun, srun or another starter says it has started; 0: none did.
int num_started_workers();

}  // namespace ballast
