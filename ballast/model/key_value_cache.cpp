// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/key_value_cache.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <numeric>

namespace ballast::model {
namespace {

// Zeros. On the CPU no page of them is there before it is written: a cache has room for whole
// contexts, which few texts fill.
at::Tensor lazy_zeros(const std::vector<int64_t>& shape, const at::TensorOptions& options) {
  const int64_t numbers =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (!options.device().is_cpu() || numbers == 0) return at::zeros(shape, options);
  const auto bytes = static_cast<size_t>(numbers) * options.dtype().itemsize();
  void* const memory = std::calloc(bytes, 1);
  if (memory == nullptr) throw std::bad_alloc();
  return at::from_blob(
      memory, shape, [](void* held) { std::free(held); }, options);
}

}  // namespace

KeyValueCache::KeyValueCache(const config::ModelConfig& config, int64_t rows,
                             const at::TensorOptions& options, int64_t shards)
    : cached_(at::zeros({rows}, options.dtype(at::kLong))),
      row_(at::arange(rows, options.dtype(at::kLong))) {
  const std::vector<int64_t> shape = {rows, config.kv_heads() / shards, config.context,
                                      config.width_of_head()};
  for (int64_t layer = 0; layer < config.layers; ++layer)
    layers_.push_back({lazy_zeros(shape, options), lazy_zeros(shape, options)});
}

KeyValueCache KeyValueCache::emptied_row(int64_t row) {
  is_empty_ = false;  // soon
  KeyValueCache one;
  one.cached_ = cached_.narrow(0, row, 1).zero_();
  one.row_ = row_.narrow(0, 0, 1);
  for (const LayerCache& layer : layers_)
    one.layers_.push_back({layer.keys.narrow(0, row, 1), layer.values.narrow(0, row, 1)});
  return one;
}

KeyValueCache KeyValueCache::places(const at::Tensor& rows, const at::Tensor& positions) const {
  KeyValueCache some;
  some.cached_ = positions.clone();
  some.row_ = rows;
  some.layers_ = layers_;
  some.is_empty_ = false;
  return some;
}

void KeyValueCache::advance(int64_t tokens) {
  cached_.add_(tokens);
  is_empty_ = false;
}

void KeyValueCache::forget(const at::Tensor& rows) { cached_.index_fill_(0, rows, 0); }

}  // namespace ballast::model
