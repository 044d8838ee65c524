// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/turned_heads.h"

namespace ballast::kernels {

// Where the keys and values of tokens lie that new ones look back at. Row r of the cache has a
// place for each of S positions.
struct CachedHeads {
  at::Tensor keys, values;  // [R, heads.keys, S, W], dense
  at::Tensor row;           // [T] int64: the row of each new token
  at::Tensor position;      // [T] int64: its place there, no two of a row the same
};

// On the CPU in fp32 and fp64.
bool suits_cached_attention(const at::Tensor& qkv);

// New tokens of any texts: puts their keys and values into the cache, then each looks at itself and
// at all before it in its row. Reads no more than that, and gives of each token what it would give
// of it alone, to the bit (rows_alone.h). qkv [T, heads.columns()], turned -> [T, queries W]
// REQUIRES: suits_cached_attention; places before a token's are filled, or among the new; no
// autograd.
at::Tensor cached_attention(const at::Tensor& qkv, const Heads& heads, const CachedHeads& cache);

}  // namespace ballast::kernels
