// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/row_access.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

const dim3 kBlock(kLanes, kWarpsPerBlock);
constexpr int kBatch = 8;  // rows on their way at a time

template <typename Scalar, int kSize>
__device__ Pack<Scalar, kSize> load(const Scalar* from) {
  return *reinterpret_cast<const Pack<Scalar, kSize>*>(from);
}

// Neighbouring columns of one lane, in the type sums are in.
template <typename Scalar, int kSize>
struct Columns {
  using T = RowSum<Scalar>;
  T values[kSize] = {};

  template <typename Number>
  __device__ void add(const Pack<Number, kSize>& pack) {
#pragma unroll
    for (int l = 0; l < kSize; ++l) values[l] += static_cast<T>(pack.values[l]);
  }
  template <typename Number>
  __device__ void store(Number* to) const {
    Pack<Number, kSize> pack;
#pragma unroll
    for (int l = 0; l < kSize; ++l) pack.values[l] = static_cast<Number>(values[l]);
    *reinterpret_cast<Pack<Number, kSize>*>(to) = pack;
  }
  __device__ void add_to(Scalar* to) {
    add(load<Scalar, kSize>(to));
    store(to);
  }
};

// One warp a token: y = words[token] + places[position].
template <typename Scalar, int kSize>
__global__ void embed_kernel(Scalar* y, const int64_t* tokens, const int64_t* positions,
                             const Scalar* words, const Scalar* places, int64_t rows,
                             int64_t num_positions, int64_t width, int64_t num_words,
                             int64_t num_places) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const int64_t token = tokens[row], position = positions[row % num_positions];
  CUDA_KERNEL_ASSERT(token >= 0 && token < num_words && position >= 0 && position < num_places);
  for (int64_t i = threadIdx.x * kSize; i < width; i += kLanes * kSize) {
    Columns<Scalar, kSize> sum;
    sum.add(load<Scalar, kSize>(words + token * width + i));
    sum.add(load<Scalar, kSize>(places + position * width + i));
    sum.store(y + row * width + i);
  }
}

// One warp an index and a tile of columns: sum[indices[p]] += the rows p, p + P, p + 2 P, ...
template <typename Scalar, int kSize>
__global__ void add_repeated_kernel(Scalar* sum, const int64_t* indices, const Scalar* rows,
                                    int64_t num_indices, int64_t repeats, int64_t width,
                                    int64_t num_sums) {
  const int64_t p = row_of_warp();
  const int64_t column = (int64_t{blockIdx.y} * kLanes + threadIdx.x) * kSize;
  if (p >= num_indices || column >= width) return;
  const int64_t index = indices[p];
  CUDA_KERNEL_ASSERT(index >= 0 && index < num_sums);
  Columns<Scalar, kSize> columns;
#pragma unroll 8
  for (int64_t r = 0; r < repeats; ++r)
    columns.add(load<Scalar, kSize>(rows + (r * num_indices + p) * width + column));
  columns.add_to(sum + index * width + column);
}

// Rows in the order of their index: runs of equal indices. Warps take chunks of kLanes rows each; a
// run within a chunk is added to the sum by its warp. Of longer ones each chunk leaves its part:
// that of a run from an earlier chunk at parts[2 chunk], that of one that begins here at the next.
struct SortedRows {
  const int* index;      // [T]
  const int64_t* order;  // [T]: the row that stands there
  int64_t count;         // T

  __device__ int64_t end_of(int64_t chunk) const { return min((chunk + 1) * kLanes, count); }
  __device__ bool continues_after(int64_t end) const {
    return end < count && index[end - 1] == index[end];
  }
};

template <typename Scalar, int kSize>
__global__ void add_runs_kernel(Scalar* sum, SortedRows in, const Scalar* rows,
                                RowSum<Scalar>* parts, int64_t width, int64_t num_sums) {
  const int64_t chunk = row_of_warp(), first = chunk * kLanes;
  if (first >= in.count) return;
  const int64_t column = (int64_t{blockIdx.y} * kLanes + threadIdx.x) * kSize;
  const bool is_column = column < width;
  const int count = static_cast<int>(in.end_of(chunk) - first);
  const int64_t mine = first + min(static_cast<int>(threadIdx.x), count - 1);
  const int own_index = in.index[mine];
  const int64_t own_row = in.order[mine];
  CUDA_KERNEL_ASSERT(own_index >= 0 && own_index < num_sums);
  bool is_continued = first > 0 && in.continues_after(first);
  const bool continues = in.continues_after(first + count);
  Columns<Scalar, kSize> columns;
  for (int start = 0; start < count; start += kBatch) {
    Pack<Scalar, kSize> batch[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {  // rows beyond the last are its own again, and not used
      const int64_t row = __shfl_sync(0xffffffffu, own_row, start + b);
      if (is_column) batch[b] = load<Scalar, kSize>(rows + row * width + column);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b;
      const int index = __shfl_sync(0xffffffffu, own_index, at);
      const int next = __shfl_sync(0xffffffffu, own_index, min(at + 1, kLanes - 1));
      if (at >= count) break;
      if (is_column) columns.add(batch[b]);
      const bool is_last = at == count - 1;
      if (!is_last && next == index) continue;
      if (is_column) {
        const bool is_open = is_last && continues;
        if (is_continued || is_open) {
          const int64_t part = 2 * chunk + (is_continued ? 0 : 1);
          columns.store(parts + part * width + column);
        } else {
          columns.add_to(sum + int64_t{index} * width + column);
        }
      }
      is_continued = false;
      columns = {};
    }
  }
}

// The warp of the chunk in which a run over several chunks begins adds up its parts, in their
// order.
template <typename Scalar, int kSize>
__global__ void add_parts_kernel(Scalar* sum, SortedRows in, const RowSum<Scalar>* parts,
                                 int64_t width) {
  const int64_t chunk = row_of_warp(), first = chunk * kLanes;
  if (first >= in.count) return;
  const int64_t end = in.end_of(chunk);
  const int index = in.index[end - 1];
  const bool began_before = first > 0 && in.index[first - 1] == index;
  if (began_before || !in.continues_after(end)) return;
  int64_t last = chunk;  // the last chunk that has a part
  for (unsigned all = ~0u; all == ~0u;) {
    const int64_t start_of_next = (last + 1 + threadIdx.x) * kLanes;
    const bool has = start_of_next < in.count && in.index[start_of_next] == index;
    all = __ballot_sync(0xffffffffu, has);
    last += __popc(all);
  }
  const int64_t column = (int64_t{blockIdx.y} * kLanes + threadIdx.x) * kSize;
  if (column >= width) return;
  Columns<Scalar, kSize> columns;
  const auto part = [&](int64_t i) {
    return load<RowSum<Scalar>, kSize>(parts + i * width + column);
  };
  columns.add(part(2 * chunk + 1));
#pragma unroll 8
  for (int64_t c = chunk + 1; c <= last; ++c) columns.add(part(2 * c));
  columns.add_to(sum + int64_t{index} * width + column);
}

dim3 grid_of(int64_t warps, int64_t width, int columns_of_lane) {
  const int64_t tile = int64_t{kLanes} * columns_of_lane;
  return dim3(blocks_for(warps), static_cast<unsigned>((width + tile - 1) / tile));
}

void check(const Tensor& rows) {
  TORCH_CHECK(rows.is_contiguous() && rows.size(1) <= int64_t{kLanes} * 65535,
              "embedding: want contiguous rows, got ", rows.sizes());
}

template <typename Scalar>
void add_repeated(const Tensor& sum, const Tensor& indices, const Tensor& rows) {
  const int64_t count = indices.size(0), width = sum.size(1);
  with_pack_size<Scalar>(have_whole_accesses({&sum, &rows}), [&](auto size) {
    add_repeated_kernel<Scalar, size()>
        <<<grid_of(count, width, size()), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
            sum.data_ptr<Scalar>(), indices.const_data_ptr<int64_t>(),
            rows.const_data_ptr<Scalar>(), count, rows.size(0) / count, width, sum.size(0));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

template <typename Scalar>
void add_runs(const Tensor& sum, const Tensor& indices, const Tensor& rows) {
  const auto [index, order] = indices.to(at::kInt).sort(/*stable=*/true, 0, false);
  const SortedRows in{index.template const_data_ptr<int>(),
                      order.template const_data_ptr<int64_t>(), indices.size(0)};
  const int64_t width = sum.size(1), chunks = (in.count + kLanes - 1) / kLanes;
  const Tensor parts =
      sum.new_empty({2 * chunks, width}, c10::CppTypeToScalarType<RowSum<Scalar>>::value);
  with_pack_size<Scalar>(have_whole_accesses({&sum, &rows, &parts}), [&](auto size) {
    const dim3 grid = grid_of(chunks, width, size());
    const auto stream = at::cuda::getCurrentCUDAStream();
    add_runs_kernel<Scalar, size()>
        <<<grid, kBlock, 0, stream>>>(sum.data_ptr<Scalar>(), in, rows.const_data_ptr<Scalar>(),
                                      parts.data_ptr<RowSum<Scalar>>(), width, sum.size(0));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_parts_kernel<Scalar, size()><<<grid, kBlock, 0, stream>>>(
        sum.data_ptr<Scalar>(), in, parts.const_data_ptr<RowSum<Scalar>>(), width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace

Tensor embed_cuda(const Tensor& tokens, const Tensor& positions, const Tensor& words,
                  const Tensor& places) {
  const c10::cuda::CUDAGuard guard(words.device());
  check(words);
  check(places);
  TORCH_CHECK(words.scalar_type() == places.scalar_type() && words.size(1) == places.size(1),
              "embed: want tables of one dtype and width");
  const int64_t rows = tokens.size(0), width = words.size(1);
  const Tensor y = words.new_empty({rows, width});
  if (y.numel() == 0) return y;
  const Tensor from = tokens.contiguous(), at = positions.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, words.scalar_type(), "embed", [&] {
    with_pack_size<scalar_t>(have_whole_accesses({&words, &places, &y}), [&](auto size) {
      embed_kernel<scalar_t, size()>
          <<<blocks_for(rows), kBlock, 0, at::cuda::getCurrentCUDAStream()>>>(
              y.data_ptr<scalar_t>(), from.const_data_ptr<int64_t>(), at.const_data_ptr<int64_t>(),
              words.const_data_ptr<scalar_t>(), places.const_data_ptr<scalar_t>(), rows, at.size(0),
              width, words.size(0), places.size(0));
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
  });
  return y;
}

void add_rows_at_cuda_(const Tensor& sum, const Tensor& indices, const Tensor& rows) {
  const c10::cuda::CUDAGuard guard(sum.device());
  check(sum);
  TORCH_CHECK(sum.size(0) <= std::numeric_limits<int>::max(), "add_rows_at_: too many rows, ",
              sum.sizes());
  const Tensor from = rows.contiguous(), at = indices.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, sum.scalar_type(), "add_rows_at_", [&] {
    at.size(0) < from.size(0) ? add_repeated<scalar_t>(sum, at, from)
                              : add_runs<scalar_t>(sum, at, from);
  });
}

}  // namespace ballast::kernels
