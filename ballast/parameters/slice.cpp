// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/slice.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace ballast::parameters {

int64_t Slice::inner() const {
  return std::accumulate(full_shape.begin() + dim + 1, full_shape.end(), int64_t{1},
                         std::multiplies<>());
}

template <typename Work>
void Slice::for_each_range(const Work& work) const {
  const int64_t extent = full_shape[static_cast<size_t>(dim)];
  Range range;
  int64_t begin = 0;
  for (size_t i = 0; i < std::max<size_t>(1, blocks.size()); ++i) {
    const int64_t block = blocks.empty() ? extent : blocks[i], most = (block + shards - 1) / shards;
    range.full = begin + shard * most;
    range.size = std::min(most, block - shard * most);
    work(range);
    begin += block;
    range.own += range.size;
  }
}

std::vector<int64_t> Slice::shape() const {
  std::vector<int64_t> shape = full_shape;
  for_each_range([&](const Range& r) { shape[static_cast<size_t>(dim)] = r.own + r.size; });
  return shape;
}

int64_t Slice::full_index(int64_t index) const {
  const int64_t of_entry = inner();
  int64_t entries = 0;
  for_each_range([&](const Range& r) { entries = r.own + r.size; });
  const int64_t outer = index / (entries * of_entry), entry = index / of_entry % entries;
  int64_t full = 0;
  for_each_range([&](const Range& r) {
    if (entry >= r.own && entry < r.own + r.size) full = r.full + entry - r.own;
  });
  return (outer * full_shape[static_cast<size_t>(dim)] + full) * of_entry + index % of_entry;
}

at::Tensor Slice::take(const at::Tensor& full) const {
  std::vector<at::Tensor> parts;
  for_each_range([&](const Range& r) { parts.push_back(full.narrow(dim, r.full, r.size)); });
  return at::cat(parts, dim);
}

void Slice::put(const at::Tensor& part, const at::Tensor& full) const {
  for_each_range([&](const Range& r) {
    full.narrow(dim, r.full, r.size).copy_(part.narrow(dim, r.own, r.size));
  });
}

}  // namespace ballast::parameters
