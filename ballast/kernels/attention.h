// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Causal self-attention: softmax(Q K^T / sqrt(D/H)) V, per head. libtorch's fused kernels compute
// it; on the CPU in fp32 and in whole tiles our own do (attention_paths.h). In 16 bits on a GPU it
// is cuDNN's where that takes the shape, except in deterministic runs: the last bits of cuDNN's
// gradient vary. The gradient by qkv is written once.
// qkv [B * S, 3 D] (queries, keys, values side by side) -> [B * S, D]
at::Tensor causal_attention(const at::Tensor& qkv, int64_t rows, int64_t heads);

// Splits qkv [B * S, 3 D] into queries, keys, values, each a view [B, H, S, D / H].
struct QueriesKeysValues {
  at::Tensor queries, keys, values;
};
QueriesKeysValues split_heads(const at::Tensor& qkv, int64_t rows, int64_t heads);

}  // namespace ballast::kernels
