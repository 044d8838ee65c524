// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/config/config.h"

namespace ballast::model {

// The angle a position, of the W/2 pairs of a head, and what their sines are multiplied by.
struct RopeAngles {
  std::vector<float> per_position;  // [W/2]
  double magnitude = 1;
};
// Rounded to fp32, as the models that others trained had them. REQUIRES: positions are rope.
RopeAngles rope_angles(const config::ModelConfig& config);

// Cosines and sines of all positions of a context, each [S, W/2]: fp32, or fp64 for fp64.
struct RopeTables {
  at::Tensor cosines, sines;
};
RopeTables rope_tables(const config::ModelConfig& config, const at::TensorOptions& options);

}  // namespace ballast::model
