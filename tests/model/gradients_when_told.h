// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "ballast/model/language_model.h"

namespace ballast::test {

// Keeps, for each block it is told of, the gradients of the blocks from there on.
struct GradientsWhenTold : model::BackwardProgress {
  explicit GradientsWhenTold(const parameters::ParameterTable& of) : table(of) {}
  std::vector<at::Tensor> from(int64_t block) const {
    std::vector<at::Tensor> gradients;
    for (const parameters::Segment& segment : table.segments()) {
      if (segment.block && *segment.block >= block)
        gradients.push_back(table.view(table.gradient(), segment).clone());
    }
    return gradients;
  }
  void reached(int64_t block) override { told.emplace_back(block, from(block)); }

  const parameters::ParameterTable& table;
  std::vector<std::pair<int64_t, std::vector<at::Tensor>>> told;
};

}  // namespace ballast::test
