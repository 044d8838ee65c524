// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/turned_heads.h"

namespace ballast::kernels {

// Causal self-attention: softmax(Q K^T / sqrt(W)) V, per head, of queries and keys that `turning`
// changed. libtorch's fused kernels compute it; on the CPU in fp32 and in whole tiles our own do
// (attention_paths.h). In 16 bits on a GPU it is cuDNN's where that takes the shape, except in
// deterministic runs: the last bits of cuDNN's gradient vary. The gradient by qkv is written once.
// `documents` [B, S] int64: tokens see those of their own document alone; undefined: all before
// them. With it a mask is computed and read, which is slower.
// qkv [B * S, heads.columns()] (queries, keys, values side by side) -> [B * S, queries W]
at::Tensor causal_attention(const at::Tensor& qkv, int64_t rows, const Heads& heads,
                            const Turning& turning = {}, const at::Tensor& documents = {});

// Splits qkv [B * S, columns] into queries, keys, values, each a view [B, heads, S, W].
struct QueriesKeysValues {
  at::Tensor queries, keys, values;
};
QueriesKeysValues split_heads(const at::Tensor& qkv, int64_t rows, const Heads& heads);
// Keys or values [B, keys, S, W] once for each head of the queries.  -> [B, queries, S, W]
at::Tensor for_all_queries(const at::Tensor& keys, const Heads& heads);

}  // namespace ballast::kernels
