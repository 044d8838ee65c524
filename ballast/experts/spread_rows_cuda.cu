// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <tuple>

#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/row_access.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::experts {
namespace {

using at::Tensor;

const dim3 kBlock(kernels::kLanes, kernels::kWarpsPerBlock);

template <typename Unit>
__global__ void gather_rows_kernel(const Unit* x, const int64_t* source, Unit* y, int64_t rows,
                                   int64_t sources, int64_t width) {
  const int64_t row = kernels::row_of_warp();
  if (row >= rows) return;
  const int64_t from = source[row];
  CUDA_KERNEL_ASSERT(from < sources);
  for (int64_t i = threadIdx.x; i < width; i += kernels::kLanes)
    y[row * width + i] = from < 0 ? Unit{} : x[from * width + i];
}

template <typename Scalar, int kSize>
__global__ void sum_rows_kernel(const Scalar* x, const int64_t* rows, Scalar* y, int64_t sources,
                                int64_t places, int64_t width) {
  using Sum = kernels::RowSum<Scalar>;
  using Unit = kernels::Pack<Scalar, kSize>;
  const int64_t j = kernels::row_of_warp();
  if (j >= sources) return;
  for (int64_t i = threadIdx.x * kSize; i < width; i += kernels::kLanes * kSize) {
    Sum sums[kSize] = {};
    for (int64_t k = 0; k < places; ++k) {
      const int64_t row = rows[j * places + k];
      if (row < 0) continue;
      const Unit terms = *reinterpret_cast<const Unit*>(x + row * width + i);
      for (int l = 0; l < kSize; ++l) sums[l] += static_cast<Sum>(terms.values[l]);
    }
    Unit result;
    for (int l = 0; l < kSize; ++l) result.values[l] = static_cast<Scalar>(sums[l]);
    *reinterpret_cast<Unit*>(y + j * width + i) = result;
  }
}

template <typename Scalar>
struct Mix {
  int64_t sources, rows, places, width;
  const Scalar *h, *y;
  const int64_t *rows_of_source, *source_of_row;
  const kernels::RowSum<Scalar>* weights;
};

template <typename Scalar, int kSize>
__global__ void mix_rows_kernel(Mix<Scalar> in, Scalar* mixed) {
  using Sum = kernels::RowSum<Scalar>;
  using Unit = kernels::Pack<Scalar, kSize>;
  const int64_t j = kernels::row_of_warp();
  if (j >= in.sources) return;
  for (int64_t i = threadIdx.x * kSize; i < in.width; i += kernels::kLanes * kSize) {
    const Unit h = *reinterpret_cast<const Unit*>(in.h + j * in.width + i);
    Sum sums[kSize];
    for (int l = 0; l < kSize; ++l) sums[l] = static_cast<Sum>(h.values[l]);
    for (int64_t k = j * in.places; k < (j + 1) * in.places; ++k) {
      const int64_t row = in.rows_of_source[k];
      if (row < 0) continue;
      CUDA_KERNEL_ASSERT(row < in.rows);
      const Sum weight = in.weights[k];
      const Unit y = *reinterpret_cast<const Unit*>(in.y + row * in.width + i);
      for (int l = 0; l < kSize; ++l)
        sums[l] += weight * (static_cast<Sum>(y.values[l]) - static_cast<Sum>(h.values[l]));
    }
    Unit result;
    for (int l = 0; l < kSize; ++l) result.values[l] = static_cast<Scalar>(sums[l]);
    *reinterpret_cast<Unit*>(mixed + j * in.width + i) = result;
  }
}

// factor * x, in the type of rows.
template <typename Scalar, int kSize>
__device__ kernels::Pack<Scalar, kSize> scaled(const kernels::Pack<Scalar, kSize>& x,
                                               kernels::RowSum<Scalar> factor) {
  kernels::Pack<Scalar, kSize> result;
  for (int l = 0; l < kSize; ++l)
    result.values[l] =
        static_cast<Scalar>(factor * static_cast<kernels::RowSum<Scalar>>(x.values[l]));
  return result;
}

// The first warps have a source each, then there is one for each row: it clears those of nobody.
template <typename Scalar, int kSize>
__global__ void mix_rows_backward_kernel(Mix<Scalar> in, const Scalar* dmixed, Scalar* dh,
                                         Scalar* dy, kernels::RowSum<Scalar>* dweights) {
  using Sum = kernels::RowSum<Scalar>;
  using Unit = kernels::Pack<Scalar, kSize>;
  const int64_t j = kernels::row_of_warp(), first = threadIdx.x * kSize;
  constexpr int kStep = kernels::kLanes * kSize;
  if (j >= in.sources) {
    const int64_t row = j - in.sources;
    if (row >= in.rows || in.source_of_row[row] >= 0) return;
    for (int64_t i = first; i < in.width; i += kStep)
      *reinterpret_cast<Unit*>(dy + row * in.width + i) = Unit{};
    return;
  }
  const auto load = [&](const Scalar* from, int64_t row, int64_t i) {
    return *reinterpret_cast<const Unit*>(from + row * in.width + i);
  };
  Sum passed = 1;
  for (int64_t k = j * in.places; k < (j + 1) * in.places; ++k) {
    const int64_t row = in.rows_of_source[k];
    Sum along = 0;
    if (row >= 0) {
      const Sum weight = in.weights[k];
      passed -= weight;
      for (int64_t i = first; i < in.width; i += kStep) {
        const Unit d = load(dmixed, j, i), h = load(in.h, j, i), y = load(in.y, row, i);
        for (int l = 0; l < kSize; ++l)
          along += static_cast<Sum>(d.values[l]) *
                   (static_cast<Sum>(y.values[l]) - static_cast<Sum>(h.values[l]));
        *reinterpret_cast<Unit*>(dy + row * in.width + i) = scaled<Scalar, kSize>(d, weight);
      }
    }
    along = kernels::sum_over_warp(along);
    if (threadIdx.x == 0) dweights[k] = along;
  }
  for (int64_t i = first; i < in.width; i += kStep)
    *reinterpret_cast<Unit*>(dh + j * in.width + i) =
        scaled<Scalar, kSize>(load(dmixed, j, i), passed);
}

template <typename Scalar>
Mix<Scalar> mix_of(const Tensor& h, const Tensor& y, const Tensor& rows, const Tensor& weights) {
  return {h.size(0),
          y.size(0),
          rows.size(1),
          h.size(1),
          h.const_data_ptr<Scalar>(),
          y.const_data_ptr<Scalar>(),
          rows.const_data_ptr<int64_t>(),
          nullptr,
          weights.const_data_ptr<kernels::RowSum<Scalar>>()};
}

}  // namespace

Tensor gather_rows_cuda(const Tensor& x, const Tensor& source) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t rows = source.size(0), bytes = x.size(1) * x.element_size();
  Tensor y = x.new_empty({rows, x.size(1)});
  if (y.numel() == 0) return y;
  const auto launch = [&](auto unit) {
    using Unit = decltype(unit);
    gather_rows_kernel<Unit>
        <<<kernels::blocks_for(rows), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
            static_cast<const Unit*>(x.const_data_ptr()), source.const_data_ptr<int64_t>(),
            static_cast<Unit*>(y.mutable_data_ptr()), rows, x.size(0),
            bytes / static_cast<int64_t>(sizeof(Unit)));
  };
  // Copies are the same for all types of numbers.
  kernels::have_whole_accesses({&x, &y})      ? launch(uint4{})
  : kernels::have_whole_accesses({&x, &y}, 2) ? launch(uint16_t{})
                                              : launch(uint8_t{});
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor sum_rows_cuda(const Tensor& x, const Tensor& rows) {
  const c10::cuda::CUDAGuard guard(x.device());
  Tensor y = x.new_empty({rows.size(0), x.size(1)});
  if (y.numel() == 0) return y;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "sum_rows", [&] {
    kernels::with_pack_size<scalar_t>(kernels::have_whole_accesses({&x, &y}), [&](auto size) {
      sum_rows_kernel<scalar_t, size()>
          <<<kernels::blocks_for(rows.size(0)), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
              x.const_data_ptr<scalar_t>(), rows.const_data_ptr<int64_t>(), y.data_ptr<scalar_t>(),
              rows.size(0), rows.size(1), x.size(1));
    });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor mix_rows_cuda(const Tensor& h, const Tensor& y, const Tensor& rows, const Tensor& weights) {
  const c10::cuda::CUDAGuard guard(h.device());
  Tensor mixed = h.new_empty(h.sizes());
  if (mixed.numel() == 0) return mixed;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, h.scalar_type(), "mix_rows", [&] {
    const auto in = mix_of<scalar_t>(h, y, rows, weights);
    kernels::with_pack_size<scalar_t>(
        kernels::have_whole_accesses({&h, &y, &mixed}), [&](auto size) {
          mix_rows_kernel<scalar_t, size()>
              <<<kernels::blocks_for(in.sources), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
                  in, mixed.data_ptr<scalar_t>());
        });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return mixed;
}

std::tuple<Tensor, Tensor, Tensor> mix_rows_backward_cuda(const Tensor& dmixed, const Tensor& h,
                                                          const Tensor& y, const Tensor& rows,
                                                          const Tensor& source,
                                                          const Tensor& weights) {
  const c10::cuda::CUDAGuard guard(h.device());
  Tensor dh = h.new_empty(h.sizes()), dy = y.new_empty(y.sizes()),
         dweights = weights.new_empty(weights.sizes());
  if (dh.numel() + dy.numel() == 0) return {dh, dy, dweights.zero_()};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, h.scalar_type(), "mix_rows_backward", [&] {
    auto in = mix_of<scalar_t>(h, y, rows, weights);
    in.source_of_row = source.const_data_ptr<int64_t>();
    kernels::with_pack_size<scalar_t>(
        kernels::have_whole_accesses({&dmixed, &h, &y, &dh, &dy}), [&](auto size) {
          mix_rows_backward_kernel<scalar_t, size()>
              <<<kernels::blocks_for(in.sources + in.rows), kBlock, 0,
                 at::cuda::getCurrentCUDAStream()>>>(
                  in, dmixed.const_data_ptr<scalar_t>(), dh.data_ptr<scalar_t>(),
                  dy.data_ptr<scalar_t>(), dweights.data_ptr<kernels::RowSum<scalar_t>>());
        });
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {dh, dy, dweights};
}

}  // namespace ballast::experts
