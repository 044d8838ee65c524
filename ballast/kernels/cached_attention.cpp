// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cached_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ballast/kernels/row_loops.h"
#include "ballast/kernels/row_product.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

// Less work than this, in products of two numbers, is not worth waking a thread.
constexpr int64_t kProductsPerTask = 1 << 18;
constexpr int64_t kNumbersPerTask = 1 << 16;

// The queries of one token that share a head of keys and values.
template <typename Scalar>
struct QueryGroup {
  Heads heads;
  int64_t seen;
  const Scalar *queries, *keys, *values;  // [times, W], [S, W] and [S, W] of the cache
  Scalar* mixed;                          // [times, W]
};

template <typename Scalar>
void attend(const QueryGroup<Scalar>& g, std::vector<Scalar>& scores) {
  const int64_t width = g.heads.width, times = g.heads.queries / g.heads.keys, seen = g.seen;
  scores.resize(static_cast<size_t>(times * seen));
  multiply_rows(RowProduct<Scalar>{.rows = times,
                                   .outputs = seen,
                                   .inner = width,
                                   .x = g.queries,
                                   .x_stride = width,
                                   .weight = g.keys,
                                   .weight_stride = width,
                                   .y = scores.data(),
                                   .y_stride = seen});
  const auto scale = 1 / std::sqrt(static_cast<Scalar>(width));
  for (int64_t query = 0; query < times; ++query) {
    Scalar* const weights = scores.data() + query * seen;
    softmax_row(weights, seen, scale);
    mix_values(SeenRow<Scalar>{width, seen, width, weights, g.values, g.mixed + query * width});
  }
}

void check(const Tensor& qkv, const Heads& heads, const CachedHeads& cache) {
  const int64_t tokens = qkv.size(0);
  TORCH_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.columns() && cache.keys.dim() == 4 &&
                  cache.keys.size(1) == heads.keys && cache.keys.size(3) == heads.width &&
                  cache.keys.sizes() == cache.values.sizes() && cache.keys.is_contiguous() &&
                  cache.values.is_contiguous() && cache.keys.scalar_type() == qkv.scalar_type() &&
                  cache.row.size(0) == tokens && cache.position.size(0) == tokens,
              "cached_attention: want qkv [T, ", heads.columns(), "] and a dense cache [R, ",
              heads.keys, ", S, ", heads.width, "], got ", qkv.sizes(), " and ",
              cache.keys.sizes());
  const auto *row = cache.row.const_data_ptr<int64_t>(),
             *position = cache.position.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens; ++i) {
    TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < cache.keys.size(0) && position[i] >= 0 &&
                          position[i] < cache.keys.size(2),
                      "cached_attention: no place ", position[i], " in row ", row[i], " of ",
                      cache.keys.sizes());
  }
}

}  // namespace

bool suits_cached_attention(const Tensor& qkv) {
  return qkv.is_cpu() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kDouble);
}

Tensor cached_attention(const Tensor& given, const Heads& heads, const CachedHeads& cache) {
  const Tensor qkv = given.contiguous();
  check(qkv, heads, cache);
  const int64_t tokens = qkv.size(0), capacity = cache.keys.size(2), width = heads.width;
  const int64_t times = heads.queries / heads.keys;
  const Tensor mixed = at::empty({tokens, heads.queries * width}, qkv.options());
  const auto *row = cache.row.const_data_ptr<int64_t>(),
             *position = cache.position.const_data_ptr<int64_t>();
  int64_t seen = 0;
  for (int64_t i = 0; i < tokens; ++i) seen += position[i] + 1;
  const int64_t of_group = 2 * seen / std::max<int64_t>(1, tokens) * times * width;
  AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "cached_attention", [&] {
    const auto* const in = qkv.const_data_ptr<scalar_t>();
    auto *const keys = cache.keys.data_ptr<scalar_t>(),
                *const values = cache.values.data_ptr<scalar_t>(),
                *const out = mixed.data_ptr<scalar_t>();
    const auto place_of = [&](int64_t token, int64_t head) {
      return (row[token] * heads.keys + head) * capacity * width;
    };
    const auto keep = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = i / heads.keys, head = i % heads.keys;
        const int64_t to = place_of(token, head) + position[token] * width;
        const auto* const key = in + token * heads.columns() + (heads.queries + head) * width;
        std::copy_n(key, width, keys + to);
        std::copy_n(key + heads.keys * width, width, values + to);
      }
    };
    const auto look = [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> scores;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = i / heads.keys, head = i % heads.keys;
        const int64_t place = place_of(token, head);
        attend(QueryGroup<scalar_t>{.heads = heads,
                                    .seen = position[token] + 1,
                                    .queries = in + token * heads.columns() + head * times * width,
                                    .keys = keys + place,
                                    .values = values + place,
                                    .mixed = out + (token * heads.queries + head * times) * width},
               scores);
      }
    };
    at::parallel_for(0, tokens * heads.keys, kNumbersPerTask / (2 * width) + 1, keep);
    at::parallel_for(0, tokens * heads.keys, kProductsPerTask / (of_group + 1) + 1, look);
  });
  return mixed;
}

}  // namespace ballast::kernels
