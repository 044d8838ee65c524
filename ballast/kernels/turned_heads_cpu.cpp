// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/kernels/rows_alone_paths.h"
#include "ballast/kernels/turned_heads_paths.h"
#include "ballast/kernels/widened.h"

namespace ballast::kernels {

using at::Tensor;

namespace {

// Turns pairs of x [T, heads, W] by the angles of the tables, or back.
Tensor turned(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool back) {
  const int64_t half = x.size(2) / 2, period = cosines.size(0);
  const Tensor rows = x.view({-1, period, x.size(1), 2, half});
  const Tensor c = cosines.view({1, period, 1, half}), s = sines.view({1, period, 1, half});
  const Tensor first = rows.select(3, 0), second = rows.select(3, 1);
  const Tensor across = back ? second * s : -(second * s);
  const Tensor other = back ? -(first * s) : first * s;
  return at::cat({first * c + across, second * c + other}, -1).view(x.sizes());
}

// The norms' weights of all heads of queries and keys.  [queries + keys, W]
Tensor weights_of_heads(const Tensor& query_norm, const Tensor& key_norm, int64_t queries,
                        int64_t keys) {
  return widened(at::cat({query_norm.expand({queries, -1}), key_norm.expand({keys, -1})}));
}

}  // namespace

std::tuple<Tensor, Tensor> plain_turn_heads(const Tensor& qkv, const OptionalTensor& cosines,
                                            const OptionalTensor& sines,
                                            const OptionalTensor& query_norm,
                                            const OptionalTensor& key_norm, int64_t queries,
                                            int64_t keys, double epsilon, bool with_values) {
  const int64_t width = qkv.size(1) / (queries + 2 * keys), met = queries + keys;
  if (RowsAlone::hold_for(qkv) && with_values) {
    return {turn_rows_alone(qkv, {queries, keys, width},
                            {.cosines = cosines.value_or(Tensor()),
                             .sines = sines.value_or(Tensor()),
                             .query_norm = {query_norm.value_or(Tensor()), {}},
                             .key_norm = {key_norm.value_or(Tensor()), {}},
                             .epsilon = epsilon}),
            at::empty({0}, qkv.options())};
  }
  const Tensor heads = qkv.contiguous().view({qkv.size(0), met + keys, width});
  Tensor x = widened(heads.narrow(1, 0, met)).contiguous(), inverse = at::empty({0}, x.options());
  if (query_norm) {
    inverse = x.square().mean(-1).add_(epsilon).rsqrt_();  // [T, met]
    x = (x * inverse.unsqueeze(-1)).mul_(weights_of_heads(*query_norm, *key_norm, queries, keys));
  }
  if (cosines) x = turned(x, *cosines, *sines, /*back=*/false);
  x = x.to(qkv.scalar_type());
  if (with_values) x = at::cat({x, heads.narrow(1, met, keys)}, 1);
  return {x.view({qkv.size(0), -1}), inverse};
}

Tensor plain_turn_heads_back(const Tensor& dqueries, const Tensor& dkeys, const Tensor& dvalues,
                             const Tensor& qkv, const OptionalTensor& inverse,
                             const OptionalTensor& cosines, const OptionalTensor& sines,
                             const OptionalTensor& query_norm, const OptionalTensor& key_norm,
                             const OptionalTensor& query_sum, const OptionalTensor& key_sum) {
  const int64_t queries = dqueries.size(1), keys = dkeys.size(1), met = queries + keys;
  const int64_t width = dqueries.size(3), tokens = qkv.size(0);
  const auto rows = [&](const Tensor& d) {
    return d.transpose(1, 2).reshape({tokens, d.size(1), width});
  };
  Tensor d = widened(at::cat({rows(dqueries), rows(dkeys)}, 1));  // [T, met, W]
  if (cosines) d = turned(d, *cosines, *sines, /*back=*/true);
  if (query_norm) {
    const Tensor r = inverse->unsqueeze(-1);
    const Tensor heads = qkv.contiguous().view({tokens, met + keys, width});
    const Tensor unit = widened(heads.narrow(1, 0, met)) * r;
    const Tensor by_weight = (d * unit).sum(0);  // [met, W]
    if (query_sum) query_sum->add_(by_weight.narrow(0, 0, queries).sum(0));
    if (key_sum) key_sum->add_(by_weight.narrow(0, queries, keys).sum(0));
    const Tensor scaled = d * weights_of_heads(*query_norm, *key_norm, queries, keys);
    d = (scaled - unit * (scaled * unit).mean(-1, /*keepdim=*/true)).mul_(r);
  }
  return at::cat({d.to(qkv.scalar_type()), rows(dvalues)}, 1).view(qkv.sizes());
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("turn_heads", plain_turn_heads);
  library.impl("turn_heads_back", plain_turn_heads_back);
}

}  // namespace ballast::kernels
