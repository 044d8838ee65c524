// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/parameter.h"

namespace ballast::model {

// Who sums the gradient of the bias that a change of the stream ends with: the part that makes the
// change, or the stream it is added to.
enum class BiasGradient { kHere, kByStream };
inline kernels::Parameter bias_of(const kernels::Parameter& bias, BiasGradient sums) {
  return sums == BiasGradient::kHere ? bias : kernels::Parameter{bias.value, {}};
}

// The residual stream x [T, D]. The last change may not have been added yet: the norm that follows
// adds it and norms, in one pass.
class ResidualStream {
 public:
  explicit ResidualStream(at::Tensor x) : x_(std::move(x)) {}

  // x = x + change. To all rows of the change `bias` was added, whose gradient nobody has summed:
  // that is done on the way back through this sum.
  void add(const at::Tensor& change, const kernels::Parameter& bias = kernels::no_parameter());
  const at::Tensor& value();  // x
  at::Tensor normed(const kernels::Parameter& weight, const kernels::Parameter& bias,
                    const kernels::NormForm& form);  // layer_norm(x)
  // x = mark(x). `mark` returns its argument and marks a boundary: backward reaches it after all
  // that follows and before all that came earlier.
  void pass(const std::function<at::Tensor(const at::Tensor&)>& mark);
  // Keeps x as the next norm reads it, until it is taken. Its gradient is added to the sum of all
  // others by x.
  void keep_next() { keeps_ = true; }
  at::Tensor take_kept();

  // part(*this), with the same bits, but only what enters it is kept: backward runs it once more.
  // REQUIRES: part gives the same each time; what it refers to lives until then.
  using Part = std::function<void(ResidualStream&)>;
  void pass_recomputed(const Part& part);

 private:
  friend struct RecomputedPart;
  at::Tensor x_, change_ = {};  // change_ undefined: nothing is to be added
  const kernels::Parameter* bias_ = &kernels::no_parameter();  // of the change
  bool keeps_ = false;                                         // the next norm keeps x
  at::Tensor kept_ = {};
};

}  // namespace ballast::model
