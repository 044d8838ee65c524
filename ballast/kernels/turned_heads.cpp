// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/turned_heads.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/turned_heads_paths.h"

namespace ballast::kernels {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "turn_heads(Tensor qkv, Tensor? cosines, Tensor? sines, Tensor? query_norm, Tensor? "
      "key_norm, "
      "int queries, int keys, float epsilon, bool with_values) -> (Tensor, Tensor)");
  library.def(
      "turn_heads_back(Tensor dqueries, Tensor dkeys, Tensor dvalues, Tensor qkv, Tensor? inverse, "
      "Tensor? cosines, Tensor? sines, Tensor? query_norm, Tensor? key_norm, "
      "Tensor(a!)? query_sum, Tensor(b!)? key_sum) -> Tensor");
}

namespace {

void check(const Tensor& qkv, const Heads& heads, const Turning& turning) {
  TORCH_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.columns(), "turn_heads: want qkv [T, ",
              heads.columns(), "], got ", qkv.sizes());
  if (!turning.turns()) return;
  const Tensor& table = turning.cosines;
  TORCH_CHECK(heads.width % 2 == 0 && table.dim() == 2 && table.size(1) == heads.width / 2 &&
                  table.sizes() == turning.sines.sizes() &&
                  (qkv.size(0) == 0 || qkv.size(0) % table.size(0) == 0),
              "turn_heads: want tables [P, ", heads.width / 2, "] with P dividing ", qkv.size(0),
              " rows, got ", table.sizes());
}

}  // namespace

TurnedHeads turn_heads(const Tensor& qkv, const Heads& heads, const Turning& turning,
                       Values values) {
  check(qkv, heads, turning);
  static const auto op = find_op<decltype(plain_turn_heads)>("ballast::turn_heads");
  auto [turned, inverse] =
      op.call(qkv, if_defined(turning.cosines), if_defined(turning.sines),
              if_defined(turning.query_norm.value), if_defined(turning.key_norm.value),
              heads.queries, heads.keys, turning.epsilon, values == Values::kCopied);
  return {turned, turning.norms() ? inverse : Tensor()};
}

Tensor turn_heads_back(const HeadGradients& d, const Tensor& qkv, const Tensor& inverse,
                       const Heads& heads, const Turning& turning) {
  check(qkv, heads, turning);
  static const auto op = find_op<decltype(plain_turn_heads_back)>("ballast::turn_heads_back");
  return op.call(d.queries, d.keys, d.values, qkv, if_defined(inverse), if_defined(turning.cosines),
                 if_defined(turning.sines), if_defined(turning.query_norm.value),
                 if_defined(turning.key_norm.value), if_defined(turning.query_norm.gradient),
                 if_defined(turning.key_norm.gradient));
}

namespace {

struct TurnedHeadsFunction : torch::autograd::Function<TurnedHeadsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t rows,
                        const Heads& heads, const Turning& turning) {
    const TurnedHeads turned = turn_heads(qkv, heads, turning);
    context->save_for_backward({qkv, turned.inverse, turning.cosines, turning.sines,
                                turning.query_norm.value, turning.key_norm.value});
    context->saved_data["sums"] = gradient_sums({turning.query_norm, turning.key_norm});
    context->saved_data["shape"] =
        std::vector<int64_t>{rows, heads.queries, heads.keys, heads.width};
    return turned.turned;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const auto shape = context->saved_data["shape"].toIntVector();
    const Heads heads{shape[1], shape[2], shape[3]};
    const Tensor parts = dy[0].contiguous().view(
        {shape[0], -1, heads.queries + 2 * heads.keys, heads.width});  // [B, S, all heads, W]
    const auto part = [&](int64_t first, int64_t count) {
      return parts.narrow(2, first, count).transpose(1, 2);
    };
    const HeadGradients d{part(0, heads.queries), part(heads.queries, heads.keys),
                          part(heads.queries + heads.keys, heads.keys)};
    const Turning turning{saved[2], saved[3], {saved[4], sums[0]}, {saved[5], sums[1]}};
    return {turn_heads_back(d, saved[0], saved[1], heads, turning), {}, {}, {}};
  }
};

}  // namespace

Tensor turned_heads(const Tensor& qkv, int64_t rows, const Heads& heads, const Turning& turning) {
  if (turning.is_nothing()) return qkv;
  if (!at::GradMode::is_enabled()) return turn_heads(qkv, heads, turning).turned;
  return TurnedHeadsFunction::apply(qkv, rows, heads, turning);
}

}  // namespace ballast::kernels
