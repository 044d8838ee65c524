// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace ballast::cli {

// What this machine offers, and what it lacks. Stable keys:
//   version    of ballast, with its commit
//   hardware   as describe_hardware() gives it
//   libtorch   version, path (of libtorch_cpu), threads, cpu_capability, and onednn {max_cpu_isa,
//              reason}: the limit in the environment, and why Ballast sets one; null where none
//   cuda       usable, plugin {path, loaded, reason}, driver {version, reason}, and
//              devices [{name, memory_bytes, compute_capability}]; reason is null where all is well
//   nccl, mpi  version and path of the library, or null
//   parquet    plugin {path, loaded, reason}
//   programs   mpirun, rsvg-convert: the path of each, or null
//   disk       path (the current folder), free_bytes
//   missing    [{name, needed_for, how_to_get}]
// Loads the plugins for CUDA and Parquet, if they can be loaded.
nlohmann::json examine_machine();

}  // namespace ballast::cli
