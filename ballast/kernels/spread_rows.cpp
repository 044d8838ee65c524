// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/spread_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/spread_rows_paths.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Tensor gather_rows(const Tensor& x, const Tensor& source) {
  if (x.is_cpu()) return gather_rows_cpu(x.contiguous(), source.contiguous());
  if (x.size(0) == 0) return at::zeros({source.size(0), x.size(1)}, x.options());
  return at::index_select(x, 0, source.clamp_min(0)).masked_fill_(source.lt(0).unsqueeze(1), 0);
}

// [N, K, D] of x [M, D] and rows [N, K]
Tensor gather_places(const Tensor& x, const Tensor& rows) {
  return gather_rows(x, rows.reshape({-1})).view({rows.size(0), rows.size(1), x.size(1)});
}

Tensor sum_rows(const Tensor& x, const Tensor& rows) {
  if (rows.size(1) == 1) return gather_rows(x, rows.reshape({-1}));
  if (x.is_cpu()) return sum_rows_cpu(x.contiguous(), rows.contiguous());
  return gather_places(x, rows).sum({1});
}

Tensor mix_rows_plain(const MixInputs& in) {
  const auto type = in.weights.scalar_type();
  const Tensor h = in.h.to(type), weights = in.weights.masked_fill(in.rows_of_source.lt(0), 0);
  const Tensor change = gather_places(in.y, in.rows_of_source).to(type) - h.unsqueeze(1);
  return (change.mul_(weights.unsqueeze(2)).sum({1}) + h).to(in.h.scalar_type());
}

MixGradients mix_rows_backward_plain(const MixInputs& in, const Tensor& dmixed) {
  const auto type = in.weights.scalar_type(), row_type = in.h.scalar_type();
  const Tensor nowhere = in.rows_of_source.lt(0), weights = in.weights.masked_fill(nowhere, 0);
  const Tensor d = dmixed.to(type);
  const Tensor change =
      gather_places(in.y, in.rows_of_source).to(type) - in.h.to(type).unsqueeze(1);
  const Tensor dweights = (change * d.unsqueeze(1)).sum({2}).masked_fill_(nowhere, 0);
  // One place more, for what goes nowhere.
  const int64_t places = in.y.size(0);
  const Tensor weight_of_row =
      at::zeros({places + 1}, weights.options())
          .scatter_(0, at::where(nowhere, places, in.rows_of_source).reshape({-1}),
                    weights.reshape({-1}))
          .narrow(0, 0, places);
  const Tensor dy = gather_rows(d, in.source_of_row) * weight_of_row.unsqueeze(1);
  const Tensor dh = d * (1 - weights.sum({1}, true));
  return {dh.to(row_type), dy.to(row_type), dweights};
}

struct SpreadRowsFunction : torch::autograd::Function<SpreadRowsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& source_of_row,
                        const Tensor& rows_of_source) {
    context->save_for_backward({rows_of_source});
    return gather_rows(x, source_of_row);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return {sum_rows(dy[0], context->get_saved_variables()[0]), {}, {}};
  }
};

struct MixRowsFunction : torch::autograd::Function<MixRowsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& y,
                        const Tensor& rows_of_source, const Tensor& source_of_row,
                        const Tensor& weights) {
    context->save_for_backward({h, y, rows_of_source, source_of_row, weights});
    const auto compute = h.is_cpu() ? mix_rows_cpu : mix_rows_plain;
    return compute({h, y, rows_of_source, source_of_row, weights});
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto compute = saved[0].is_cpu() ? mix_rows_backward_cpu : mix_rows_backward_plain;
    const auto [dh, dy, dweights] =
        compute({saved[0], saved[1], saved[2], saved[3], saved[4]}, gradients[0].contiguous());
    return {dh, dy, {}, {}, dweights};
  }
};

void check_places(const char* what, int64_t sources, const Tensor& rows_of_source,
                  const Tensor& source_of_row) {
  TORCH_CHECK(rows_of_source.dim() == 2 && rows_of_source.size(0) == sources &&
                  source_of_row.dim() == 1 && rows_of_source.scalar_type() == at::kLong &&
                  source_of_row.scalar_type() == at::kLong,
              what, ": want int64 source_of_row [M] and rows_of_source [", sources, ", K], got ",
              source_of_row.sizes(), " and ", rows_of_source.sizes());
}

}  // namespace

Tensor spread_rows(const Tensor& x, const Tensor& source_of_row, const Tensor& rows_of_source) {
  TORCH_CHECK(x.dim() == 2, "spread_rows: want x [N, D], got ", x.sizes());
  check_places("spread_rows", x.size(0), rows_of_source, source_of_row);
  return SpreadRowsFunction::apply(x, source_of_row, rows_of_source);
}

Tensor mix_rows(const Tensor& h, const Tensor& y, const Tensor& rows_of_source,
                const Tensor& source_of_row, const Tensor& weights) {
  TORCH_CHECK(h.dim() == 2 && y.dim() == 2 && y.size(1) == h.size(1) &&
                  y.scalar_type() == h.scalar_type() && y.size(0) == source_of_row.size(0),
              "mix_rows: want h [N, D], y [M, D] and source_of_row [M], got ", h.sizes(), ", ",
              y.sizes(), " and ", source_of_row.sizes());
  check_places("mix_rows", h.size(0), rows_of_source, source_of_row);
  const auto type = h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  TORCH_CHECK(weights.sizes() == rows_of_source.sizes() && weights.scalar_type() == type,
              "mix_rows: want weights ", rows_of_source.sizes(), " in ", type, ", got ",
              weights.sizes(), " in ", weights.scalar_type());
  return MixRowsFunction::apply(h.contiguous(), y.contiguous(), rows_of_source.contiguous(),
                                source_of_row.contiguous(), weights.contiguous());
}

}  // namespace ballast
