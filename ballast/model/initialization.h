// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/config/config.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::model {

// How the parts of the model start: GPT-2's values. Matrices take part in weight decay, vectors do
// not.
inline parameters::SegmentSpec matrix(const std::string& name, int64_t rows, int64_t columns) {
  return {.name = name,
          .shape = {rows, columns},
          .initialization = parameters::Initialization::normal(parameters::kWeightDeviation),
          .decay = true};
}

// A projection that is added to the residual stream.
inline parameters::SegmentSpec residual_matrix(const std::string& name, int64_t rows,
                                               int64_t columns, const config::ModelConfig& config) {
  parameters::SegmentSpec spec = matrix(name, rows, columns);
  spec.initialization.deviation = parameters::residual_deviation(config.layers);
  return spec;
}

inline parameters::SegmentSpec vector(const std::string& name, int64_t size,
                                      parameters::Initialization initialization) {
  return {.name = name, .shape = {size}, .initialization = initialization};
}

}  // namespace ballast::model
