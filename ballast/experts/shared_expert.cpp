// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shared_expert.h"

#include <ATen/TensorOperators.h>

#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::experts {

using at::Tensor;

SharedExpert::SharedExpert(const SharedExpertShape& shape, const std::string& name,
                           parameters::ParameterTable& table) {
  const int64_t d = shape.width, f = shape.hidden;
  const auto zero = parameters::Initialization::zero(), one = parameters::Initialization::one();
  const auto up = parameters::Initialization::normal(parameters::kWeightDeviation);
  const auto down =
      shape.down_deviation > 0 ? parameters::Initialization::normal(shape.down_deviation) : zero;
  for (int64_t i = 0; i < shape.sublayers; ++i) {
    // Each worker has the gradient of the tokens that it brings to the layer, as a router has.
    const auto declare =
        [&](const char* part, std::vector<int64_t> extents,
            parameters::Initialization initialization) -> const kernels::Parameter& {
      return table.declare({.name = name + ".shared.sublayer." + std::to_string(i) + "." + part,
                            .shape = extents,
                            .initialization = initialization,
                            .owner = parameters::Owner::kRouter,
                            .decay = extents.size() > 1});
    };
    sublayers_.push_back({declare("norm.weight", {d}, one), declare("norm.bias", {d}, zero),
                          declare("up.weight", {f, d}, up), declare("up.bias", {f}, zero),
                          declare("down.weight", {d, f}, down), declare("down.bias", {d}, zero)});
  }
}

Tensor SharedExpert::forward(const Tensor& tokens) const {
  Tensor added;
  for (const Sublayer& s : sublayers_) {
    const Tensor x = added.defined() ? tokens + added : tokens;
    const Tensor change = kernels::feed_forward(kernels::layer_norm(x, s.norm, s.norm_bias),
                                                {s.up, s.up_bias, s.down, s.down_bias});
    added = added.defined() ? added + change : change;
  }
  return added;
}

}  // namespace ballast::experts
