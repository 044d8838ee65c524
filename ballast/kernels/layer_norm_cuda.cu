// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <type_traits>

#include "ballast/kernels/layer_norm_kernels_cuda.cuh"

namespace ballast {
namespace {

using at::Tensor;

// How rows of `width` elements of `bytes` are divided; no warps: the kernels do not take them.
struct Division {
  int warps = 0, packs = 0;
};
Division division_of(int64_t width, int64_t bytes) {
  if (width == 0 || width * bytes % 16 != 0) return {};
  const int64_t packs = (width * bytes / 16 + kLanes - 1) / kLanes;  // of a lane, if alone
  for (int warps = 1; warps <= kWarpsPerBlock; warps *= 2) {
    const int64_t share = (packs + warps - 1) / warps;
    if (share <= kMostPacks) return {warps, static_cast<int>(share)};
  }
  return {};
}

// Whether all are of x's type, whole and on 16-byte boundaries.
bool fits(const Tensor& x, std::initializer_list<const Tensor*> tensors) {
  return std::ranges::all_of(tensors, [&](const Tensor* t) {
    return t->scalar_type() == x.scalar_type() && t->is_contiguous() &&
           reinterpret_cast<uintptr_t>(t->const_data_ptr()) % 16 == 0;
  });
}

// Calls work with the number of packs a lane has, at compile time.
template <typename Work>
void with_packs(int packs, const Work& work) {
  packs == 1   ? work(std::integral_constant<int, 1>())
  : packs == 2 ? work(std::integral_constant<int, 2>())
  : packs == 3 ? work(std::integral_constant<int, 3>())
               : work(std::integral_constant<int, 4>());
}

template <typename Scalar>
const Scalar* data_or_null(const std::optional<Tensor>& x) {
  return x ? x->const_data_ptr<Scalar>() : nullptr;
}

Tensor empty_stats(const Tensor& x) {
  return at::empty({x.size(0), 1},
                   x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
}

bool known_type(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat ||
         x.scalar_type() == at::kDouble;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> norm_rows_cuda(const Tensor& given_x,
                                                          const std::optional<Tensor>& given_change,
                                                          const Tensor& weight,
                                                          const Tensor& bias) {
  const c10::cuda::CUDAGuard guard(given_x.device());
  const Tensor x = given_x.contiguous();
  const auto change = given_change ? std::optional(given_change->contiguous()) : std::nullopt;
  const Division division = division_of(x.size(1), x.element_size());
  if (division.warps == 0 || !known_type(x) ||
      !fits(x, {&x, change ? &*change : &x, &weight, &bias}))
    return plain_norm_rows(x, change, weight, bias);
  Tensor normed = at::empty_like(x), sum = change ? at::empty_like(x) : Tensor();
  Tensor mean = empty_stats(x), inverse = empty_stats(x);
  const Rows rows{x.size(0), static_cast<int>(x.size(1)), division.warps};
  if (rows.rows == 0) return {sum, normed, mean, inverse};
  const auto blocks = static_cast<unsigned>((rows.rows + rows.per_block() - 1) / rows.per_block());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "norm_rows", [&] {
    const Forward<scalar_t> at{x.const_data_ptr<scalar_t>(),
                               data_or_null<scalar_t>(change),
                               weight.const_data_ptr<scalar_t>(),
                               bias.const_data_ptr<scalar_t>(),
                               change ? sum.data_ptr<scalar_t>() : nullptr,
                               normed.data_ptr<scalar_t>(),
                               mean.data_ptr<RowSum<scalar_t>>(),
                               inverse.data_ptr<RowSum<scalar_t>>()};
    with_packs(division.packs, [&](auto packs) {
      norm_rows_kernel<scalar_t, packs()>
          <<<blocks, dim3(kLanes, kWarpsPerBlock), 0, at::cuda::getCurrentCUDAStream()>>>(rows, at);
    });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {sum, normed, mean, inverse};
}

Tensor norm_rows_backward_cuda(const Tensor& given_dnormed, const std::optional<Tensor>& given_dsum,
                               const Tensor& given_sum, const Tensor& mean, const Tensor& inverse,
                               const Tensor& weight, const std::optional<Tensor>& weight_sum,
                               const std::optional<Tensor>& bias_sum) {
  const c10::cuda::CUDAGuard guard(given_sum.device());
  const Tensor dnormed = given_dnormed.contiguous(), sum = given_sum.contiguous();
  const auto dsum = given_dsum ? std::optional(given_dsum->contiguous()) : std::nullopt;
  const Division division = division_of(sum.size(1), sum.element_size());
  if (division.warps == 0 || !known_type(sum) ||
      !fits(sum, {&dnormed, dsum ? &*dsum : &sum, &sum, &weight, weight_sum ? &*weight_sum : &sum,
                  bias_sum ? &*bias_sum : &sum}))
    return plain_norm_rows_backward(dnormed, dsum, sum, mean, inverse, weight, weight_sum,
                                    bias_sum);
  Tensor dx = at::empty_like(sum);
  const Rows rows{sum.size(0), static_cast<int>(sum.size(1)), division.warps};
  if (rows.rows == 0) return dx;
  const int at_once =
      at::cuda::getCurrentDeviceProperties()->multiProcessorCount * blocks_at_once(division.packs);
  const auto blocks = static_cast<int>(
      std::min<int64_t>((rows.rows + rows.per_block() - 1) / rows.per_block(), at_once));
  const int chunks = static_cast<int>(division.warps * division.packs * 16 / sum.element_size());
  const bool wanted = weight_sum || bias_sum;
  const Tensor partials =
      wanted ? at::empty({blocks, 2, chunks, kLanes}, mean.options()) : Tensor();
  const auto stream = at::cuda::getCurrentCUDAStream();
  const dim3 block(kLanes, kWarpsPerBlock);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, sum.scalar_type(), "norm_rows_backward", [&] {
    using Sum = RowSum<scalar_t>;
    const Backward<scalar_t> at{dnormed.const_data_ptr<scalar_t>(),
                                data_or_null<scalar_t>(dsum),
                                sum.const_data_ptr<scalar_t>(),
                                weight.const_data_ptr<scalar_t>(),
                                mean.const_data_ptr<Sum>(),
                                inverse.const_data_ptr<Sum>(),
                                dx.data_ptr<scalar_t>(),
                                wanted ? partials.data_ptr<Sum>() : nullptr};
    with_packs(division.packs, [&](auto packs) {
      norm_rows_backward_kernel<scalar_t, packs()><<<blocks, block, 0, stream>>>(rows, at);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (!wanted) return;
    add_partials_kernel<scalar_t><<<dim3(chunks, 2), block, 0, stream>>>(
        rows, division.packs, blocks, at.partials,
        weight_sum ? weight_sum->data_ptr<scalar_t>() : nullptr,
        bias_sum ? bias_sum->data_ptr<scalar_t>() : nullptr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return dx;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("norm_rows", norm_rows_cuda);
  library.impl("norm_rows_backward", norm_rows_backward_cuda);
}

}  // namespace ballast
