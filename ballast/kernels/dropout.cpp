// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/dropout.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/dropout_parts.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/parallel_ranges.h"

namespace ballast::kernels {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("leave_out(Tensor x, Tensor key, int place, int first_row, float part) -> Tensor");
}

namespace {

Tensor leave_out_cpu(const Tensor& given, const Tensor& key, int64_t place, int64_t first_row,
                     double part) {
  const Tensor x = given.contiguous(), y = at::empty_like(x);
  const DropoutMask mask = DropoutMask::of(static_cast<uint64_t>(key.item<int64_t>()), place, part);
  const int64_t first = first_row * x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "leave_out", [&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const Wide scale = static_cast<Wide>(1 / (1 - part));
    parallel_ranges(x.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = mask.keeps(first + i) ? static_cast<scalar_t>(static_cast<Wide>(from[i]) * scale)
                                      : scalar_t(0);
      }
    });
  });
  return y;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor call(const Tensor& x, const Tensor& key, int64_t place, int64_t first_row,
                     double part) {
    static const auto op = find_op<decltype(leave_out_cpu)>("ballast::leave_out");
    return op.call(x, key, place, first_row, part);
  }
  static Tensor forward(AutogradContext* context, const Tensor& x, const LeftOut& left_out) {
    const auto& [key, place, first_row, part] = left_out;
    context->saved_data["key"] = key;
    context->saved_data["where"] = std::vector<int64_t>{place, first_row};
    context->saved_data["part"] = part;
    return call(x, key, place, first_row, part);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto where = context->saved_data["where"].toIntVector();
    return {call(dy[0], context->saved_data["key"].toTensor(), where[0], where[1],
                 context->saved_data["part"].toDouble()),
            {}};
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("leave_out", leave_out_cpu); }

Tensor dropout(const Tensor& x, const LeftOut& left_out) {
  TORCH_CHECK(x.dim() == 2 && left_out.part >= 0 && left_out.part < 1,
              "dropout: want x [T, D] and a part from 0 to 1, got ", x.sizes(), " and ",
              left_out.part);
  if (left_out.part == 0) return x;
  return DropoutFunction::apply(x, left_out);
}

}  // namespace ballast::kernels
