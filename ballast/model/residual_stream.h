// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "ballast/kernels/parameter.h"

namespace ballast {

// The residual stream x [T, D]. The last change to it may be yet to be added: the norm that follows
// does both in one pass.
class ResidualStream {
 public:
  explicit ResidualStream(at::Tensor x) : x_(std::move(x)) {}

  void add(const at::Tensor& change);                                 // x = x + change
  const at::Tensor& value();                                          // x
  at::Tensor normed(const Parameter& weight, const Parameter& bias);  // layer_norm(x)
  // x = mark(x), where mark hands on what it is given. On the way back it is reached after all that
  // follows and before all that came earlier.
  void pass(const std::function<at::Tensor(const at::Tensor&)>& mark);

  // part(*this), with the same bits, but for the way back only what enters it is kept: there it
  // runs once more. REQUIRES: part gives the same each time; what it refers to lives until then.
  using Part = std::function<void(ResidualStream&)>;
  void pass_recomputed(const Part& part);

 private:
  friend struct RecomputedPart;
  ResidualStream(at::Tensor x, at::Tensor change) : x_(std::move(x)), change_(std::move(change)) {}

  at::Tensor x_, change_;  // change_ undefined: nothing is to be added
};

}  // namespace ballast
