// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "ballast/comm/communicator_mpi.h"
#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/undertaker.h"
#include "ballast/comm/watchdog.h"
#include "ballast/comm/world.h"

namespace ballast::comm {
namespace {

WorkerGroup all_workers(const MpiRuntime& runtime) {
  WorkerGroup group{0, "all workers", {}};
  group.members.resize(static_cast<size_t>(runtime.size()));
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

class MpiWorld : public World {
 public:
  explicit MpiWorld(const WorldOptions& options)
      : World(options.gpus, "MPI"),
        runtime_(std::make_shared<MpiRuntime>(options)),
        everyone_(runtime_, MPI_COMM_WORLD, all_workers(*runtime_)) {}

  Communicator& everyone() override { return everyone_; }

  PlaceOnMachine place() const override { return runtime_->place(); }

  void abort(int code) noexcept override {
    tell_launcher(Note::kEnds, runtime_->rank(), code);
    leave_undertaker();
    end_process_soon(code);
    runtime_->stop_mover();
    MPI_Abort(MPI_COMM_WORLD, code);
  }

 protected:
  void close_host() override {
    everyone_.barrier({"end"});
    runtime_->finalize();
  }
  std::shared_ptr<RollCall> roll_call() override { return runtime_->roll_call(); }

 private:
  std::shared_ptr<MpiRuntime> runtime_;
  MpiCommunicator everyone_;
};

}  // namespace
}  // namespace ballast::comm

void ballast_open_mpi_world(const ballast::comm::WorldOptions& options,
                            std::unique_ptr<ballast::comm::World>& world) {
  world = std::make_unique<ballast::comm::MpiWorld>(options);
}
