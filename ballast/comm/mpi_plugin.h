// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ballast/comm/world.h"

namespace ballast::comm {

// MPI lives in libballast_mpi.so, so that a machine without it still runs a world of one.
struct MpiPlugin {
  std::filesystem::path path;  // the file, whether or not it is there
  std::string reason;          // why it is not loaded; empty if it is
  void (*open)(const WorldOptions&, std::unique_ptr<World>&) = nullptr;  // null: not loaded
};

// Where the plugin should be: beside libballast_comm.so.
std::filesystem::path mpi_plugin_path();

// Loads the plugin, for the rest of the process. A second call costs nothing.
// Never throws. Does not start MPI: open() does, once in a process.
MpiPlugin load_mpi_plugin();
MpiPlugin load_mpi_plugin(const std::filesystem::path& path);

}  // namespace ballast::comm

// What the plugin exports.
extern "C" void ballast_open_mpi_world(const ballast::comm::WorldOptions& options,
                                       std::unique_ptr<ballast::comm::World>& world);
