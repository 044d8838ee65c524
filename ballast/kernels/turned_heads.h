// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// The heads that lie side by side in a row of qkv: all of the queries, then those of the keys, then
// as many of the values. Each head of keys and values serves queries / keys of the queries.
struct Heads {
  int64_t queries = 1, keys = 1;
  int64_t width = 0;  // W of a head

  int64_t columns() const { return (queries + 2 * keys) * width; }
};

// What happens to queries and keys before they meet: an RMSNorm of each head, then rotary
// positions. Numbers i and i + W/2 of a head are turned by an angle that depends on the position.
struct Turning {
  at::Tensor cosines, sines;       // [P, W/2], row t % P for token t; undefined: nothing is turned
  Parameter query_norm, key_norm;  // [W]; undefined: no norm
  double epsilon = 1e-6;           // of the norm

  bool turns() const { return cosines.defined(); }
  bool norms() const { return query_norm.value.defined(); }
  bool is_nothing() const { return !turns() && !norms(); }
};

// qkv [T, columns()] -> `turned`, the same with turned queries and keys, or those alone: [T,
// (queries + keys) W]. `inverse` [T, queries + keys] is what the norm multiplied by, for the way
// back; undefined without a norm. Neither takes part in autograd.
enum class Values { kCopied, kLeftOut };
struct TurnedHeads {
  at::Tensor turned, inverse;
};
TurnedHeads turn_heads(const at::Tensor& qkv, const Heads& heads, const Turning& turning,
                       Values values = Values::kCopied);

// The gradient by qkv [T, columns()], from those by turned queries, keys and values, each
// [B, heads, S, W] with dense rows of W; T = B S. Adds the norms' gradients to their sums.
struct HeadGradients {
  at::Tensor queries, keys, values;
};
at::Tensor turn_heads_back(const HeadGradients& d, const at::Tensor& qkv, const at::Tensor& inverse,
                           const Heads& heads, const Turning& turning);

// The same as one operation of autograd's.
at::Tensor turned_heads(const at::Tensor& qkv, int64_t rows, const Heads& heads,
                        const Turning& turning);

}  // namespace ballast::kernels
