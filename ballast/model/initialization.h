// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

// Several matrices with as many columns, one above another.
inline parameters::SegmentSpec matrices(const std::string& name, std::vector<int64_t> rows,
                                        int64_t columns) {
  parameters::SegmentSpec spec =
      matrix(name, std::accumulate(rows.begin(), rows.end(), int64_t{0}), columns);
  spec.matrices = std::move(rows);
  return spec;
}

// One whose gradient is a product of matrices.
inline parameters::SegmentSpec multiplied(parameters::SegmentSpec spec) {
  spec.multiplied = true;
  return spec;
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

// A bias of several matrices, one after another, all zeros.
inline parameters::SegmentSpec vectors(const std::string& name, std::vector<int64_t> sizes) {
  parameters::SegmentSpec spec =
      vector(name, std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
             parameters::Initialization::zero());
  spec.matrices = std::move(sizes);
  return spec;
}

}  // namespace ballast::model
