// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/muon.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::training {

// Moves the table's Muon matrices along their orthogonalised momentum (docs/optimizers.md), those
// of one shape together. Workers that hold the same matrix all compute the same; of one that is
// divided among shards each gathers the whole momentum, and keeps its part of the direction.
class Muon {
 public:
  // REQUIRES: the table is allocated and outlives this, as do `shards`, the workers that hold a
  // model together; null: one does.
  Muon(const parameters::ParameterTable& table, const config::OptimizerConfig& config,
       comm::Communicator* shards);

  // As Optimizer::update. Collective among the shards.
  void update(const at::Tensor& numbers, const at::Tensor& scale) const;

 private:
  // Matrices that are orthogonalised together: of one shape, divided alike.
  struct Batch {
    kernels::MuonBuffers buffers;
    std::vector<int64_t> shape;      // [r, c] of the parts here
    std::optional<int64_t> divided;  // along this dimension
    kernels::MuonConstants constants;
  };

  void add_batches(const parameters::ParameterTable& table, const config::OptimizerConfig& config);
  at::Tensor gathered(const at::Tensor& parts, int64_t dim) const;
  at::Tensor own_part(const at::Tensor& whole, const Batch& batch) const;

  comm::Communicator* shards_;
  std::vector<Batch> batches_;
};

}  // namespace ballast::training
