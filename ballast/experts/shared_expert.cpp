// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shared_expert.h"

#include <ATen/TensorOperators.h>

#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::experts {

using at::Tensor;

SharedExpert::SharedExpert(const SharedExpertShape& shape, const std::string& name,
                           parameters::ParameterTable& table)
    : form_(shape.form) {
  const int64_t d = shape.width, f = shape.hidden;
  const auto zero = parameters::Initialization::zero(), one = parameters::Initialization::one();
  const auto up = parameters::Initialization::normal(parameters::kWeightDeviation);
  const auto down =
      shape.down_deviation > 0 ? parameters::Initialization::normal(shape.down_deviation) : zero;
  for (int64_t i = 0; i < shape.sublayers; ++i) {
    // Each worker has the gradient of the tokens that it brings to the layer, as a router has.
    const auto declare =
        [&](const char* part, std::vector<int64_t> extents,
            parameters::Initialization initialization,
            const std::vector<int64_t>& matrices = {}) -> const kernels::Parameter& {
      return table.declare({.name = name + ".shared.sublayer." + std::to_string(i) + "." + part,
                            .shape = extents,
                            .initialization = initialization,
                            .owner = parameters::Owner::kRouter,
                            .decay = extents.size() > 1,
                            .matrices = matrices});
    };
    const auto declare_if =
        [&](bool wanted, const char* part, int64_t size,
            parameters::Initialization initialization) -> const kernels::Parameter& {
      return wanted ? declare(part, {size}, initialization) : kernels::no_parameter();
    };
    const int64_t inner = f * kernels::columns_taken(form_.activation);
    sublayers_.push_back({declare_if(form_.norms, "norm.weight", d, one),
                          declare_if(form_.norms && form_.norm.takes_mean(), "norm.bias", d, zero),
                          declare("up.weight", {inner, d}, up,
                                  std::vector<int64_t>(static_cast<size_t>(inner / f), f)),
                          declare_if(shape.biases, "up.bias", inner, zero),
                          declare("down.weight", {d, f}, down),
                          declare_if(shape.biases, "down.bias", d, zero)});
  }
}

Tensor SharedExpert::forward(const Tensor& tokens) const {
  Tensor added;
  for (const Sublayer& s : sublayers_) {
    const Tensor x = added.defined() ? tokens + added : tokens;
    const Tensor normed = form_.norms ? kernels::layer_norm(x, s.norm, s.norm_bias, form_.norm) : x;
    const Tensor change =
        kernels::feed_forward(normed, {s.up, s.up_bias, s.down, s.down_bias, form_.activation});
    added = added.defined() ? added + change : change;
  }
  return added;
}

}  // namespace ballast::experts
