// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ballast/experts/borrowed_layer.h"

namespace ballast::python {

// Layers between the passes of a process. One that waits for its backward pass is held by a tensor,
// which autograd and compiled graphs carry from one pass to the other, and is let go with it. One
// that is idle is kept for the next pass with the same settings, since it has the solver's memory.
class HeldLayers {
 public:
  static HeldLayers& instance();

  // An idle layer with these settings, or a new one. `group`: of open_process_group.
  std::unique_ptr<experts::BorrowedLayer> take(const std::string& settings,
                                               const std::string& group);
  // It may be used again. Layers of a process group may not: the group can end before them.
  void put_back(const std::string& settings, const std::string& group,
                std::unique_ptr<experts::BorrowedLayer> layer);

  // [1] int64 on the CPU, a zero: its memory is what holds the layer. A copy of it does not.
  at::Tensor hold(std::unique_ptr<experts::BorrowedLayer> layer);
  // The layer that the tensor held; null: it was taken already, or let go.
  std::unique_ptr<experts::BorrowedLayer> release(const at::Tensor& held);
  int64_t held();  // how many wait

 private:
  HeldLayers() = default;

  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<experts::BorrowedLayer>> held_;  // by that memory
  std::map<std::string, std::vector<std::unique_ptr<experts::BorrowedLayer>>> idle_;
};

}  // namespace ballast::python
