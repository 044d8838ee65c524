// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>

#include "ballast/kernels/held_rows_cuda.cuh"
#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_access.h"
#include "ballast/kernels/turned_heads_paths.h"
#include "ballast/kernels/turned_pairs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;
using namespace turned_heads;

constexpr int kBlocksPerProcessor = 8;

template <typename Scalar>
struct Forward {
  const Scalar* qkv;
  const RowSum<Scalar>*cosines, *sines;  // null: nothing is turned
  const Scalar* norm[2];                 // null: no norm
  Scalar* turned;
  int64_t columns;  // of turned
  RowSum<Scalar>* inverse;
  RowSum<Scalar> epsilon;
};

// __grid_constant__: arguments that are indexed by the kind of head would be copied to each
// thread's stack.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads)
    turn_kernel(const __grid_constant__ Shape shape, const __grid_constant__ Forward<Scalar> at) {
  using Sum = RowSum<Scalar>;
  constexpr int kSize = kSizeOf<Scalar>;
  const int kind = static_cast<int>(blockIdx.y), half = shape.width / 2;
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const bool there = i < shape.count(kind);
  const Place place = place_of<kSize>(shape, kind, there ? i : 0);
  const int64_t begin = begin_of(shape, kind, place, shape.columns()),
                to = begin_of(shape, kind, place, at.columns);
  const Words first = load(at.qkv + begin), second = load(at.qkv + begin + half);
  if (kind == kValues) {
    if (there) {
      store(at.turned + to, first);
      store(at.turned + to + half, second);
    }
    return;
  }
  Pair<Scalar> pair(first, second);
  if (at.norm[0] != nullptr) {
    Sum squares = 0;
#pragma unroll
    for (int l = 0; l < kSize; ++l)
      squares += pair.first[l] * pair.first[l] + pair.second[l] * pair.second[l];
    const Sum inverse = rsqrt(sum_over_group(squares, shape) / shape.width + at.epsilon);
    const Words u = load(at.norm[kind] + place.column),
                v = load(at.norm[kind] + place.column + half);
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      pair.first[l] *= inverse * number<Scalar>(u, l);
      pair.second[l] *= inverse * number<Scalar>(v, l);
    }
    if (there && place.column == 0)
      at.inverse[shape.inverse_at(kind, place.token, place.head)] = inverse;
  }
  if (at.cosines != nullptr) {
    const int64_t row = int64_t{shape.period.mod(place.token)} * half + place.column;
    pair.turn(at.cosines + row, at.sines + row, Sum{1});
  }
  if (!there) return;
  store(at.turned + to, rounded<Scalar>(pair.first));
  store(at.turned + to + half, rounded<Scalar>(pair.second));
}

// A gradient [B, heads, S, W] by its strides.
template <typename Scalar>
struct Strided {
  const Scalar* data;
  int64_t sequence, head, token;
};

template <typename Scalar>
struct Backward {
  Strided<Scalar> d[kKinds];
  const Scalar* qkv;
  const RowSum<Scalar>*cosines, *sines, *inverse;
  const Scalar* norm[2];
  Scalar* dqkv;
  RowSum<Scalar>* partials;  // [blocks, 2, W]; no norm: null
};

// The block's sums of a norm's gradients, in a fixed order: over the threads of a warp that have
// the same columns, then over the warps.
template <typename Sum, int kSize>
__device__ void store_partials(const Shape& shape, const Sum* mine, Sum* to) {
  constexpr int kWarps = kThreads / kLanes;
  __shared__ Sum parts[kWarps][2 * kSize][kLanes];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const int group = static_cast<int>(shape.group.divisor);
#pragma unroll
  for (int k = 0; k < 2 * kSize; ++k) {
    Sum sum = mine[k];
    for (int distance = group; distance < kLanes; distance *= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane < group) parts[warp][k][lane] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * kSize * group; i += kThreads) {
    const int k = i / group, g = i % group;
    Sum sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += parts[w][k][g];
    to[k / kSize * (shape.width / 2) + g * kSize + k % kSize] = sum;
  }
}

// Turns a head's gradient by the norm's result into that by its argument, at `begin` of qkv, and
// adds to the gradient by the norm's weight. All threads of a warp call it.
template <typename Scalar>
__device__ void back_through_norm(const Shape& shape, const Backward<Scalar>& at,
                                  const Place& place, bool there, int64_t begin, Pair<Scalar>& pair,
                                  RowSum<Scalar>* by_norm) {
  using Sum = RowSum<Scalar>;
  constexpr int kSize = kSizeOf<Scalar>;
  const int kind = static_cast<int>(blockIdx.y), half = shape.width / 2;
  const Sum inverse = at.inverse[shape.inverse_at(kind, place.token, place.head)];
  const Words x = load(at.qkv + begin), y = load(at.qkv + begin + half);
  const Words u = load(at.norm[kind] + place.column), v = load(at.norm[kind] + place.column + half);
  Sum along = 0;
#pragma unroll
  for (int l = 0; l < kSize; ++l) {
    const Sum p = number<Scalar>(x, l) * inverse, q = number<Scalar>(y, l) * inverse;
    by_norm[l] += there ? pair.first[l] * p : Sum{0};
    by_norm[kSize + l] += there ? pair.second[l] * q : Sum{0};
    pair.first[l] *= number<Scalar>(u, l);
    pair.second[l] *= number<Scalar>(v, l);
    along += pair.first[l] * p + pair.second[l] * q;
  }
  along = sum_over_group(along, shape) / shape.width;
#pragma unroll
  for (int l = 0; l < kSize; ++l) {
    pair.first[l] = inverse * (pair.first[l] - number<Scalar>(x, l) * inverse * along);
    pair.second[l] = inverse * (pair.second[l] - number<Scalar>(y, l) * inverse * along);
  }
}

template <typename Scalar>
__global__ void __launch_bounds__(kThreads)
    turn_back_kernel(const __grid_constant__ Shape shape,
                     const __grid_constant__ Backward<Scalar> at) {
  using Sum = RowSum<Scalar>;
  constexpr int kSize = kSizeOf<Scalar>;
  const int kind = static_cast<int>(blockIdx.y), half = shape.width / 2;
  const Strided<Scalar> from = at.d[kind];
  const unsigned count = shape.count(kind), stride = gridDim.x * kThreads;
  Sum by_norm[2 * kSize] = {};
  // All threads take part in a round: heads are summed over.
  for (unsigned first = blockIdx.x * kThreads; first < count; first += stride) {
    const unsigned i = first + threadIdx.x;
    const bool there = i < count;
    const Place place = place_of<kSize>(shape, kind, there ? i : 0);
    const int64_t begin = begin_of(shape, kind, place, shape.columns());
    const auto [sequence, position] = shape.sequence.divmod(place.token);
    const Scalar* const d = from.data + sequence * from.sequence + place.head * from.head +
                            position * from.token + place.column;
    const Words low = load(d), high = load(d + half);
    if (kind == kValues) {
      if (there) {
        store(at.dqkv + begin, low);
        store(at.dqkv + begin + half, high);
      }
      continue;
    }
    Pair<Scalar> pair(low, high);
    if (at.cosines != nullptr) {
      const int64_t row = int64_t{shape.period.mod(place.token)} * half + place.column;
      pair.turn(at.cosines + row, at.sines + row, Sum{-1});
    }
    if (at.norm[0] != nullptr) back_through_norm(shape, at, place, there, begin, pair, by_norm);
    if (!there) continue;
    store(at.dqkv + begin, rounded<Scalar>(pair.first));
    store(at.dqkv + begin + half, rounded<Scalar>(pair.second));
  }
  if (at.partials == nullptr || kind == kValues) return;
  store_partials<Sum, kSize>(shape, by_norm,
                             at.partials + (int64_t{blockIdx.x} * 2 + kind) * shape.width);
}

// Threads of a head; 0: the kernels do not take its width.
int group_of(int64_t width, int64_t bytes) {
  const int64_t size = 16 / bytes, half = width / 2;
  if (width % 2 != 0 || half % size != 0) return 0;
  const int64_t group = half / size;
  return group <= kLanes && (group & (group - 1)) == 0 ? static_cast<int>(group) : 0;
}

// Nothing: the kernels do not take it.
std::optional<Shape> shape_of(const Tensor& qkv, int64_t queries, int64_t keys, int64_t sequence,
                              const OptionalTensor& cosines) {
  const int64_t width = qkv.size(1) / (queries + 2 * keys);
  const int64_t group = group_of(width, qkv.element_size());
  if (group == 0 || qkv.size(0) * std::max(queries, keys) * group > INT32_MAX) return {};
  const auto divider = [](int64_t by) { return Divider(static_cast<unsigned>(by)); };
  return Shape{static_cast<unsigned>(qkv.size(0)),
               static_cast<int>(width),
               divider(group),
               {divider(queries), divider(keys), divider(keys)},
               divider(cosines ? cosines->size(0) : 1),
               divider(std::max<int64_t>(sequence, 1))};
}

unsigned blocks_for(const Shape& shape) {
  return (std::max(shape.count(kQueries), shape.count(kKeys)) + kThreads - 1) / kThreads;
}

bool tables_fit(const OptionalTensor& cosines, const OptionalTensor& sines) {
  return !cosines || (cosines->is_contiguous() && sines->is_contiguous() &&
                      is_on_boundary(*cosines) && is_on_boundary(*sines));
}

bool norms_fit(const Tensor& qkv, const OptionalTensor& query_norm,
               const OptionalTensor& key_norm) {
  return !query_norm || (is_on_boundary(*query_norm) && is_on_boundary(*key_norm) &&
                         query_norm->scalar_type() == qkv.scalar_type());
}

// Whether rows of W can be loaded 16 bytes at a time.
bool has_whole_rows(const Tensor& d) {
  const int64_t size = 16 / d.element_size();
  return d.stride(3) == 1 && d.stride(0) % size == 0 && d.stride(1) % size == 0 &&
         d.stride(2) % size == 0 && is_on_boundary(d);
}

}  // namespace

std::tuple<Tensor, Tensor> turn_heads_cuda(const Tensor& given, const OptionalTensor& cosines,
                                           const OptionalTensor& sines,
                                           const OptionalTensor& query_norm,
                                           const OptionalTensor& key_norm, int64_t queries,
                                           int64_t keys, double epsilon, bool with_values) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor qkv = given.contiguous();
  const std::optional<Shape> shape = shape_of(qkv, queries, keys, qkv.size(0), cosines);
  if (!shape || !is_of_row_type(qkv) || !is_on_boundary(qkv) || !tables_fit(cosines, sines) ||
      !norms_fit(qkv, query_norm, key_norm))
    return plain_turn_heads(qkv, cosines, sines, query_norm, key_norm, queries, keys, epsilon,
                            with_values);
  const int64_t heads = with_values ? queries + 2 * keys : queries + keys;
  Tensor turned = qkv.new_empty({qkv.size(0), heads * shape->width});
  const auto sum_type = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Tensor inverse = qkv.new_empty({query_norm ? qkv.size(0) : 0, queries + keys}, sum_type);
  if (qkv.size(0) == 0) return {turned, inverse};
  const dim3 grid(blocks_for(*shape), with_values ? kKinds : kValues);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, qkv.scalar_type(), "turn_heads", [&] {
    using Sum = RowSum<scalar_t>;
    const Forward<scalar_t> at{
        qkv.const_data_ptr<scalar_t>(),
        data_or_null<Sum>(cosines),
        data_or_null<Sum>(sines),
        {data_or_null<scalar_t>(query_norm), data_or_null<scalar_t>(key_norm)},
        turned.data_ptr<scalar_t>(),
        turned.size(1),
        inverse.data_ptr<Sum>(),
        static_cast<Sum>(epsilon)};
    turn_kernel<scalar_t><<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(*shape, at);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {turned, inverse};
}

Tensor turn_heads_back_cuda(const Tensor& dqueries, const Tensor& dkeys, const Tensor& dvalues,
                            const Tensor& given, const OptionalTensor& inverse,
                            const OptionalTensor& cosines, const OptionalTensor& sines,
                            const OptionalTensor& query_norm, const OptionalTensor& key_norm,
                            const OptionalTensor& query_sum, const OptionalTensor& key_sum) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor qkv = given.contiguous();
  const std::optional<Shape> shape =
      shape_of(qkv, dqueries.size(1), dkeys.size(1), dqueries.size(2), cosines);
  if (!shape || !is_of_row_type(qkv) || !is_on_boundary(qkv) || !tables_fit(cosines, sines) ||
      !norms_fit(qkv, query_norm, key_norm) || !has_whole_rows(dqueries) ||
      !has_whole_rows(dkeys) || !has_whole_rows(dvalues)) {
    return plain_turn_heads_back(dqueries, dkeys, dvalues, qkv, inverse, cosines, sines, query_norm,
                                 key_norm, query_sum, key_sum);
  }
  Tensor dqkv = qkv.new_empty(qkv.sizes());
  if (qkv.size(0) == 0) return dqkv;
  const int processors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  const unsigned blocks =
      std::min(blocks_for(*shape), static_cast<unsigned>(processors * kBlocksPerProcessor));
  const Tensor partials =
      query_norm ? inverse->new_empty({int64_t{blocks}, 2, shape->width}) : Tensor();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, qkv.scalar_type(), "turn_heads_back", [&] {
    using Sum = RowSum<scalar_t>;
    const auto strided = [](const Tensor& d) {
      return Strided<scalar_t>{d.const_data_ptr<scalar_t>(), d.stride(0), d.stride(1), d.stride(2)};
    };
    const Backward<scalar_t> at{
        {strided(dqueries), strided(dkeys), strided(dvalues)},
        qkv.const_data_ptr<scalar_t>(),
        data_or_null<Sum>(cosines),
        data_or_null<Sum>(sines),
        query_norm ? inverse->const_data_ptr<Sum>() : nullptr,
        {data_or_null<scalar_t>(query_norm), data_or_null<scalar_t>(key_norm)},
        dqkv.data_ptr<scalar_t>(),
        query_norm ? partials.data_ptr<Sum>() : nullptr};
    turn_back_kernel<scalar_t>
        <<<dim3(blocks, kKinds), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(*shape, at);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (query_norm) {
    const Tensor sums = partials.sum(0);  // [2, W]
    if (query_sum) query_sum->add_(sums[kQueries]);
    if (key_sum) key_sum->add_(sums[kKeys]);
  }
  return dqkv;
}

}  // namespace ballast::kernels
