// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <vector>

#include "ballast/experts/expert_mlp.h"
#include "tests/experts/expert_cases.h"

namespace ballast::experts {

using Loads = std::vector<int64_t>;

inline constexpr const char* kExpertWeightNames[] = {"norm",    "norm_bias", "up",
                                                     "up_bias", "down",      "down_bias"};

inline std::vector<std::vector<int64_t>> weight_shapes(int64_t experts, int64_t width,
                                                       int64_t inner) {
  return {{experts, width}, {experts, width},        {experts, inner, width},
          {experts, inner}, {experts, width, inner}, {experts, width}};
}

inline ExpertWeights expert_weights(const std::vector<kernels::Parameter>& p) {
  return {p[0], p[1], p[2], p[3], p[4], p[5]};
}

// The definition, expert by expert, in operations that autograd differentiates.
inline at::Tensor plain_expert_feed_forward(const at::Tensor& x, const Loads& rows_of_expert,
                                            const std::vector<at::Tensor>& w) {
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (size_t e = 0; e < rows_of_expert.size(); row += rows_of_expert[e++]) {
    const at::Tensor x_e = x.narrow(0, row, rows_of_expert[e]);
    const at::Tensor centred = x_e - x_e.mean(1, true);
    const at::Tensor normed =
        centred / (centred.square().mean(1, true) + 1e-5).sqrt() * w[0][e] + w[1][e];
    const at::Tensor active = at::relu(at::linear(normed, w[2][e], w[3][e]));
    parts.push_back(x_e + at::linear(active, w[4][e], w[5][e]));
  }
  return at::cat(parts);
}

// Where the inner units are before relu: anywhere, or far from zero. There the gradient jumps, and
// a unit that rounding turns on or off has no right one.
enum class Units { kAnywhere, kFarFromZero };

struct StackOfExperts : ExpertKernels {
  // Weights of a size that keeps the result's terms comparable: about 1 each.
  std::vector<SpacedParameter> spaced_weights(int64_t experts, int64_t width, int64_t inner,
                                              Units units) const {
    const bool far = units == Units::kFarFromZero;
    std::vector<SpacedParameter> weights;
    for (const auto& shape : weight_shapes(experts, width, inner)) {
      const double scale = shape.size() == 3 ? (far ? 0.25 : 1) / std::sqrt(double(shape[2])) : 1;
      at::Tensor value = random(shape) * scale;
      if (far && weights.size() == 3) value = value.sign() * 3;  // up_bias
      weights.emplace_back(value, random(shape));
    }
    return weights;
  }
};

}  // namespace ballast::experts
