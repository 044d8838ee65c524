// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ballast::parameters {

// The part of a tensor that one of several workers holds. Dimension `dim` is blocks side by side
// (queries, keys and values in qkv.weight), each of which is divided among the shards in order:
// ceil(block / shards) entries each, the last the rest. REQUIRES: none is without entries.
struct Slice {
  std::vector<int64_t> full_shape;
  int64_t dim = 0;
  std::vector<int64_t> blocks = {};  // entries of each; empty: it is one block
  int64_t shard = 0, shards = 1;

  int64_t inner() const;               // elements of an entry
  std::vector<int64_t> shape() const;  // of the part
  // Where element `index` of the part is in the full tensor; both are counted in memory's order.
  int64_t full_index(int64_t index) const;

  // Whether the part lies in one piece in the full tensor, from full_index(0) on.
  bool is_one_piece() const { return dim == 0 && blocks.size() <= 1; }

  // A copy of the part of `full`, with shape(), and the reverse.
  at::Tensor take(const at::Tensor& full) const;
  void put(const at::Tensor& part, const at::Tensor& full) const;

 private:
  // Where a block's entries are, of the part in the full tensor and in itself.
  struct Range {
    int64_t full = 0, own = 0, size = 0;
  };
  template <typename Work>
  void for_each_range(const Work& work) const;
};

}  // namespace ballast::parameters
