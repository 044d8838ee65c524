// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/parameter.h"

namespace ballast::model {

// The residual stream x [T, D]. The last change may not have been added yet: the norm that follows
// adds it and norms, in one pass.
class ResidualStream {
 public:
  explicit ResidualStream(at::Tensor x) : x_(std::move(x)) {}

  void add(const at::Tensor& change);  // x = x + change
  const at::Tensor& value();           // x
  at::Tensor normed(const kernels::Parameter& weight, const kernels::Parameter& bias,
                    const kernels::NormForm& form);  // layer_norm(x)
  // x = mark(x). `mark` returns its argument and marks a boundary: backward reaches it after all
  // that follows and before all that came earlier.
  void pass(const std::function<at::Tensor(const at::Tensor&)>& mark);

  // part(*this), with the same bits, but only what enters it is kept: backward runs it once more.
  // REQUIRES: part gives the same each time; what it refers to lives until then.
  using Part = std::function<void(ResidualStream&)>;
  void pass_recomputed(const Part& part);

 private:
  friend struct RecomputedPart;
  ResidualStream(at::Tensor x, at::Tensor change) : x_(std::move(x)), change_(std::move(change)) {}

  at::Tensor x_, change_;  // change_ undefined: nothing is to be added
};

}  // namespace ballast::model
