// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <cstdint>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// How MPI counts rows or blocks of some number of bytes. It counts in int. Where all bytes of a
// call fit, it counts bytes, which it copies fastest; else a block is one element of a type of its
// own. May be destroyed as soon as a call that uses it has begun.
class BlockType {
 public:
  BlockType(int64_t block_bytes, int64_t all_bytes);
  ~BlockType();
  BlockType(const BlockType&) = delete;
  BlockType& operator=(const BlockType&) = delete;

  operator MPI_Datatype() const { return type_; }
  // MPI's count of so many blocks.
  int count(int64_t blocks) const { return static_cast<int>(blocks * elements_); }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int64_t elements_ = 1;  // of a block
};

// float64, float32, int64, int32 or uint8.
MPI_Datatype element_type(at::ScalarType type);

// MPI's own maximum lets a NaN win or lose by the order of workers: ours lets it win.
MPI_Op operation_of(Reduction reduction, at::ScalarType type);

}  // namespace ballast::comm
