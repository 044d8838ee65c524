// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/spread_rows.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "ballast/kernels/find_op.h"

namespace ballast::experts {

// Passes over contiguous rows, without gradients: those are below.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("gather_rows(Tensor x, Tensor source) -> Tensor");
  library.def("sum_rows(Tensor x, Tensor rows) -> Tensor");
  library.def("mix_rows(Tensor h, Tensor y, Tensor rows, Tensor weights) -> Tensor");
  library.def(
      "mix_rows_backward(Tensor dmixed, Tensor h, Tensor y, Tensor rows, Tensor source, "
      "Tensor weights) -> (Tensor, Tensor, Tensor)");
}

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Tensor gather_rows(const Tensor& x, const Tensor& source) {
  static const auto op =
      kernels::find_op<Tensor(const Tensor&, const Tensor&)>("ballast::gather_rows");
  return op.call(x.contiguous(), source.contiguous());
}

Tensor sum_rows(const Tensor& x, const Tensor& rows) {
  if (rows.size(1) == 1) return gather_rows(x, rows.view({-1}));
  static const auto op =
      kernels::find_op<Tensor(const Tensor&, const Tensor&)>("ballast::sum_rows");
  return op.call(x.contiguous(), rows);
}

struct SpreadRowsFunction : torch::autograd::Function<SpreadRowsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& source_of_row,
                        const Tensor& rows_of_source) {
    context->save_for_backward({rows_of_source.contiguous()});
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
    static const auto op =
        kernels::find_op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
            "ballast::mix_rows");
    return op.call(h, y, rows_of_source, weights);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    static const auto op = kernels::find_op<std::tuple<Tensor, Tensor, Tensor>(
        const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
        "ballast::mix_rows_backward");
    const auto [dh, dy, dweights] =
        op.call(gradients[0].contiguous(), saved[0], saved[1], saved[2], saved[3], saved[4]);
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

Tensor permute_rows(const Tensor& x, const Tensor& source_of_row, const Tensor& row_of_source) {
  TORCH_CHECK(row_of_source.dim() == 1, "permute_rows: want row_of_source [N], got ",
              row_of_source.sizes());
  return spread_rows(x, source_of_row, row_of_source.unsqueeze(1));
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

}  // namespace ballast::experts
