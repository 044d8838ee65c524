// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulator/cuda_on_cpu.h"

// In place of CUDA's header: clusters and grids of the emulated GPU.
namespace cooperative_groups {

struct cluster_group {
  void barrier_arrive() const { ballast::emulator::arrive_at_team(); }
  void barrier_wait() const { ballast::emulator::wait_for_team(); }
  void sync() const {
    barrier_arrive();
    barrier_wait();
  }
  template <typename T>
  T* map_shared_rank(T* here, int block) const {
    void* const place = const_cast<std::remove_const_t<T>*>(here);
    return reinterpret_cast<T*>(ballast::emulator::shared_memory_of(place, block));
  }
  unsigned block_rank() const { return static_cast<unsigned>(ballast::emulator::cluster_rank()); }
};
inline cluster_group this_cluster() { return {}; }

using grid_group = cluster_group;
inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups
