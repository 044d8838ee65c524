// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/world.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/single.h"
#include "ballast/system/error.h"
#include "ballast/system/number_from.h"

namespace ballast::comm {
namespace {

int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::max(number_from<int>(text).value_or(0), 0);
}

std::unique_ptr<World> open_mpi_world(const WorldOptions& options, int started) {
  const MpiPlugin plugin = load_mpi_plugin();
  if (plugin.open == nullptr) {
    fail(
        "cannot work with several workers: {}. Install OpenMPI (Debian, Ubuntu: apt-get install "
        "openmpi-bin libopenmpi-dev) and build again, or start one worker without mpirun",
        plugin.reason);
  }
  std::unique_ptr<World> world;
  plugin.open(options, world);
  const int size = world->everyone().size();
  if (started > 1 && size == 1) {
    fail(
        "{0} workers were started, but MPI sees this one alone: each would do the whole job. Start "
        "them with the mpirun of the OpenMPI that {1} uses, or with srun --mpi=pmix",
        started, plugin.path.string());
  }
  return world;
}

}  // namespace

int num_started_workers() {
  // OpenMPI, other MPIs, and a step of Slurm (a batch script alone has no step).
  constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
  for (const char* name : kSizes) {
    if (const int size = number_in_environment(name); size > 0) return size;
  }
  return 0;
}

std::unique_ptr<World> open_world(const WorldOptions& options) {
  if (!(options.deadline_seconds > 0) || !std::isfinite(options.deadline_seconds))
    fail("the deadline of workers is {} seconds; it must be more than 0", options.deadline_seconds);
  const int started = num_started_workers();
  const bool mpi =
      options.kind == WorldKind::kMpi || (options.kind == WorldKind::kAuto && started > 1);
  auto world = mpi ? open_mpi_world(options, started) : open_single_world(options);
  tell_launcher(Note::kArrived, world->everyone().rank());
  return world;
}

}  // namespace ballast::comm
