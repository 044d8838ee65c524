// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace ballast::step {

// What the host makes for each step, such as the keys of a shuffle, on the device that computes it.
// On a GPU each input keeps its place, so that a step that was recorded as a graph finds it there.
// The places lie together: while the host prepares a recorded step the GPU idles, and each copy
// would take some microseconds of that. A step takes the same inputs in the same order as every
// other.
class StepInputs {
 public:
  // An input of a step, counted from 0: a host tensor, of the same size and type for every step.
  using Make = std::function<at::Tensor(uint64_t step)>;

  explicit StepInputs(at::Device device) : device_(device) {}

  // A step begins that takes its inputs one by one; they are made as they are taken.
  void begin(uint64_t step);
  // The inputs of a step, all at once, for a graph that was recorded.
  void fill(uint64_t step);
  // A step begins that is recorded: it takes inputs without making them. REQUIRES: fill().
  void begin_recording();

  at::Tensor take(Make make);

 private:
  // Memory for some inputs, [N] uint8.
  struct Chunk {
    at::Tensor there;
    int64_t used = 0;
  };
  struct Slot {
    size_t chunk;
    int64_t first;  // byte
    at::Tensor there;
    Make make;
  };
  // A place for such a tensor, with nothing in it.
  Slot make_slot(const at::Tensor& like);

  at::Device device_;
  std::vector<Chunk> chunks_;
  std::vector<Slot> slots_;
  uint64_t step_ = 0;
  size_t next_ = 0;
  bool recording_ = false;
};

// Whose input is wanted, and where. Without StepInputs (null) it is copied there by itself.
struct InputOf {
  StepInputs* inputs = nullptr;
  uint64_t step = 0;
  at::Device device = at::kCPU;
};
at::Tensor take_input(const InputOf& of, StepInputs::Make make);

}  // namespace ballast::step
