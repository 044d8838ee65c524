// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/slice.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ballast::parameters {

int64_t Slice::block() const { return full_shape[static_cast<size_t>(dim)] / blocks; }

int64_t Slice::inner() const {
  return std::accumulate(full_shape.begin() + dim + 1, full_shape.end(), int64_t{1},
                         std::multiplies<>());
}

int64_t Slice::begin() const { return shard * ((block() + shards - 1) / shards); }

int64_t Slice::size() const { return std::min((block() + shards - 1) / shards, block() - begin()); }

std::vector<int64_t> Slice::shape() const {
  std::vector<int64_t> shape = full_shape;
  shape[static_cast<size_t>(dim)] = blocks * size();
  return shape;
}

int64_t Slice::full_index(int64_t index) const {
  const int64_t of_block = size() * inner();
  return index / of_block * block() * inner() + begin() * inner() + index % of_block;
}

at::Tensor Slice::view(const at::Tensor& full) const {
  return full.view({-1, blocks, block(), inner()}).narrow(2, begin(), size());
}

at::Tensor Slice::take(const at::Tensor& full) const {
  return view(full).contiguous().view(shape());
}

void Slice::put(const at::Tensor& part, const at::Tensor& full) const {
  const at::Tensor there = view(full);
  there.copy_(part.view(there.sizes()));
}

}  // namespace ballast::parameters
