// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/turned_heads.h"

namespace ballast::kernels {

// Where the keys and values of tokens lie that new ones look back at. Row r of the cache has a
// place for each of S positions.
struct CachedHeads {
  at::Tensor keys, values;  // [R, heads.keys, S, W], dense
  at::Tensor row;           // [B] int64: the row of each new token, no two the same
  at::Tensor position;      // [B] int64: its place there; those before it are filled
};

// On the CPU in fp32 and fp64.
bool suits_cached_attention(const at::Tensor& qkv);

// One new token of each of B texts: puts its keys and values into the cache, then it looks at
// itself and at all before it. Reads no more than that, and gives of each text what it would give
// of it alone, to the bit (rows_alone.h). qkv [B, heads.columns()], turned -> [B, queries W]
// REQUIRES: suits_cached_attention; no autograd.
at::Tensor cached_attention(const at::Tensor& qkv, const Heads& heads, const CachedHeads& cache);

}  // namespace ballast::kernels
