// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <cstdint>

#include "ballast/comm/communicator.h"

namespace ballast {

// MPI counts in int: so a whole row or block, of any number of bytes, is one element of its own
// type. May be destroyed as soon as a call that uses it has begun.
class BlockType {
 public:
  explicit BlockType(int64_t bytes);
  ~BlockType();
  BlockType(const BlockType&) = delete;
  BlockType& operator=(const BlockType&) = delete;

  operator MPI_Datatype() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// float64, float32, int64, int32 or uint8.
MPI_Datatype element_type(at::ScalarType type);

// MPI's own maximum lets a NaN win or lose by the order of workers: ours lets it win.
MPI_Op operation_of(Reduction reduction, at::ScalarType type);

}  // namespace ballast
