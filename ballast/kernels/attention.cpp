// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace ballast {

using at::Tensor;

QueriesKeysValues split_heads(const Tensor& qkv, int64_t rows, int64_t heads) {
  const int64_t width = qkv.size(1) / 3;
  TORCH_CHECK(
      qkv.dim() == 2 && qkv.size(1) == 3 * width && width % heads == 0 && qkv.size(0) % rows == 0,
      "attention: want qkv [B * S, 3 D] with ", rows, " rows and ", heads, " heads, got ",
      qkv.sizes());
  const Tensor parts = qkv.view({rows, qkv.size(0) / rows, 3, heads, width / heads})
                           .transpose(1, 3);  // [B, H, 3, S, D/H]
  return {parts.select(2, 0), parts.select(2, 1), parts.select(2, 2)};
}

Tensor causal_attention(const Tensor& qkv, int64_t rows, int64_t heads) {
  const auto [queries, keys, values] = split_heads(qkv, rows, heads);
  const Tensor mixed = at::scaled_dot_product_attention(queries, keys, values, std::nullopt, 0.0,
                                                        /*is_causal=*/true);
  return mixed.transpose(1, 2).reshape({qkv.size(0), qkv.size(1) / 3});
}

}  // namespace ballast
