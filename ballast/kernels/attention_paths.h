// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/vector_math.h"

namespace ballast::kernels {

// Causal attention on the CPU in fp32 by oneDNN's small products, of sequences in whole tiles.
// Nothing above the diagonal's tiles is computed.
struct TiledAttention {
  static constexpr int64_t kTile = kColumns;

  // Whether this processor and libtorch have the products, and they suit qkv [B * S, 3 D].
  static bool suits(const at::Tensor& qkv, int64_t rows, int64_t heads);

  // qkv dense -> mixed [B * S, D]; logsumexp [B, H, S] of the scores, for the way back
  struct Mixed {
    at::Tensor values, logsumexp;
  };
  static Mixed forward(const at::Tensor& qkv, int64_t rows, int64_t heads);
  // The gradient by qkv, [B * S, 3 D], from that by mixed, dense.
  static at::Tensor backward(const at::Tensor& dmixed, const at::Tensor& qkv, const Mixed& mixed);
};

}  // namespace ballast::kernels
