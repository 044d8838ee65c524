// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
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

  // What a layer is, and where it computes: its memory is for one stream alone.
  struct Key {
    std::string settings, group;  // as parse_settings and open_process_group take them
    std::string device;
    int64_t stream = 0;  // of a GPU
    auto operator<=>(const Key&) const = default;
  };
  // With the stream that is current there.
  static Key key_of(const std::string& settings, const std::string& group, at::Device device);

  // An idle layer of this kind, or a new one.
  std::unique_ptr<experts::BorrowedLayer> take(const Key& key);
  // It may be used again. Layers of a process group may not: the group can end before them.
  void put_back(const Key& key, std::unique_ptr<experts::BorrowedLayer> layer);

  // [1] int64 on the CPU, a zero: its memory is what holds the layer. A copy of it does not.
  at::Tensor hold(std::unique_ptr<experts::BorrowedLayer> layer);
  // The layer that the tensor held; null: it was taken already, or let go.
  std::unique_ptr<experts::BorrowedLayer> release(const at::Tensor& held);
  int64_t held();  // how many wait

 private:
  HeldLayers() = default;

  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<experts::BorrowedLayer>> held_;  // by that memory
  std::map<Key, std::vector<std::unique_ptr<experts::BorrowedLayer>>> idle_;
};

}  // namespace ballast::python
