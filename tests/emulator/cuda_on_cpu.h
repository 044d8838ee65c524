// SPDX-License-Identifier: Apache-2.0
#pragma once

// CUDA's words for a C++ compiler: included before every file that translate.py has made.
// CUDA's own threadIdx and its like are not declared.
#define __DEVICE_LAUNCH_PARAMETERS_H__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tests/emulator/emulator.h"

#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#undef __align__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))

using ballast::emulator::blockDim;
using ballast::emulator::blockIdx;
using ballast::emulator::gridDim;
using ballast::emulator::threadIdx;

namespace ballast::emulator {

// Launches. `kernel<<<...>>>(arguments)` becomes on(kernel, ...)(arguments).
template <typename... P>
auto on(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) {
  return [=](std::type_identity_t<P>... arguments) {
    run({.grid = grid, .block = block, .shared_bytes = shared}, [&] { kernel(arguments...); });
  };
}

// What cudaLaunchKernelExC starts by its address alone. &kernel becomes known(&kernel).
using Starter = void (*)(const void* kernel, void** arguments);
void remember(const void* kernel, Starter starter);
template <typename... P>
const void* known(void (*kernel)(P...)) {
  const auto address = reinterpret_cast<const void*>(kernel);
  remember(address, [](const void* found, void** arguments) {
    [&]<size_t... kAt>(std::index_sequence<kAt...>) {
      reinterpret_cast<void (*)(P...)>(const_cast<void*>(found))(
          *static_cast<std::remove_cvref_t<P>*>(arguments[kAt])...);
    }
    (std::index_sequence_for<P...>{});
  });
  return address;
}

// `__shared__ T name;` becomes T& name = declared<T>([] {}), whose type is the declaration's own.
template <typename T, typename Declaration>
T& declared(Declaration) {
  static const char key = 0;
  return *static_cast<T*>(declared_shared(&key, sizeof(T)));
}

template <typename T>
struct Sent {
  T value, result;
  int from;
};
template <typename T>
void exchange(unsigned mask, Operands& operands) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    auto& sent = *static_cast<Sent<T>*>(operands[lane]);
    if ((mask >> sent.from & 1) == 0) refuse("a shuffle from a lane that is not in the mask");
    sent.result = static_cast<Sent<T>*>(operands[sent.from])->value;
  }
}
template <typename T>
T shuffle(unsigned mask, T value, int from) {
  Sent<T> sent{value, value, from};
  meet_warp(mask, "a shuffle", &sent, exchange<T>);
  return sent.result;
}

template <typename T>
struct Voted {
  T value;
  unsigned result;
};
template <typename T, auto kResult>
unsigned vote(unsigned mask, const char* what, T value) {
  Voted<T> voted{value, 0};
  meet_warp(mask, what, &voted, [](unsigned all, Operands& operands) {
    for (int lane = 0; lane < 32; ++lane) {
      if ((all >> lane & 1) == 0) continue;
      auto& own = *static_cast<Voted<T>*>(operands[lane]);
      unsigned result = kResult(0, own.value, own.value, -1);
      for (int other = 0; other < 32; ++other) {
        if ((all >> other & 1) != 0)
          result =
              kResult(result, own.value, static_cast<Voted<T>*>(operands[other])->value, other);
      }
      own.result = result;
    }
  });
  return voted.result;
}

template <typename T, typename Change>
T change(T* at, Change made) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = made(old);
    if (__atomic_compare_exchange(at, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return old;
  }
}
inline float change(float* at, auto made) {
  const unsigned old = change(reinterpret_cast<unsigned*>(at), [&](unsigned bits) {
    return std::bit_cast<unsigned>(static_cast<float>(made(std::bit_cast<float>(bits))));
  });
  return std::bit_cast<float>(old);
}
}  // namespace ballast::emulator

// The runtime's functions that take a kernel by its type.
template <typename... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                        void** arguments, size_t bytes, cudaStream_t stream) {
  return cudaLaunchCooperativeKernel(ballast::emulator::known(kernel), grid, block, arguments,
                                     bytes, stream);
}
template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(P...),
                                                          int threads, size_t bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, bytes);
}

// Waiting for each other.
inline void __syncthreads() { ballast::emulator::meet_block(ballast::emulator::Meeting::kSync, 0); }
inline int __syncthreads_or(int value) {
  return ballast::emulator::meet_block(ballast::emulator::Meeting::kAny, value);
}
inline int __syncthreads_and(int value) {
  return ballast::emulator::meet_block(ballast::emulator::Meeting::kAll, value);
}
inline int __syncthreads_count(int value) {
  return ballast::emulator::meet_block(ballast::emulator::Meeting::kCount, value);
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  ballast::emulator::meet_warp(mask, "__syncwarp", nullptr, nullptr);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Lanes of a warp.
template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = ballast::emulator::lane();
  return ballast::emulator::shuffle(mask, value, lane / width * width + from % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = ballast::emulator::lane(), from = lane ^ bits;
  return ballast::emulator::shuffle(mask, value, from / width <= lane / width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = ballast::emulator::lane(), from = lane - static_cast<int>(by);
  return ballast::emulator::shuffle(mask, value, from < lane / width * width ? lane : from);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = ballast::emulator::lane(), from = lane + static_cast<int>(by);
  return ballast::emulator::shuffle(mask, value, from >= (lane / width + 1) * width ? lane : from);
}
inline unsigned __ballot_sync(unsigned mask, int value) {
  return ballast::emulator::vote<bool, [](unsigned result, bool, bool other, int lane) {
    return lane < 0 ? 0U : result | (other ? 1U << lane : 0U);
  }>(mask, "__ballot_sync", value != 0);
}
inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0 ? 1 : 0; }
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  return ballast::emulator::vote<T, [](unsigned result, T own, T other, int lane) {
    return lane < 0 ? 0U : result | (own == other ? 1U << lane : 0U);
  }>(mask, "__match_any_sync", value);
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
  return static_cast<T>(ballast::emulator::vote<T, [](unsigned result, T own, T other, int lane) {
    const T most = lane < 0 ? own : static_cast<T>(result);
    return static_cast<unsigned>(other > most ? other : most);
  }>(mask, "__reduce_max_sync", value));
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
  return static_cast<T>(ballast::emulator::vote<T, [](unsigned result, T, T other, int lane) {
    return lane < 0 ? 0U : result + static_cast<unsigned>(other);
  }>(mask, "__reduce_add_sync", value));
}

// Atomics.
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return ballast::emulator::change(at, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicSub(T* at, std::type_identity_t<T> value) {
  return ballast::emulator::change(at, [=](T old) { return static_cast<T>(old - value); });
}
template <typename T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return ballast::emulator::change(at, [=](T old) { return old > value ? old : value; });
}
template <typename T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return ballast::emulator::change(at, [=](T old) { return old < value ? old : value; });
}
template <typename T>
T atomicCAS(T* at, std::type_identity_t<T> wanted, std::type_identity_t<T> value) {
  return ballast::emulator::change(at, [=](T old) { return old == wanted ? value : old; });
}

// Past the first cache.
template <typename T>
T __ldcg(const T* at) {
  return *at;
}

// Numbers.
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __fdividef(float x, float y) { return x / y; }
// Conversions on a GPU stop at the ends of the range, and take NaN for zero.
template <typename To, typename From>
To converted(From x) {
  constexpr auto least = static_cast<From>(std::numeric_limits<To>::min());
  constexpr auto most = static_cast<From>(std::numeric_limits<To>::max());
  if (std::isnan(x)) return 0;
  const From whole = std::nearbyint(x);
  if (whole <= least) return std::numeric_limits<To>::min();
  return whole >= most ? std::numeric_limits<To>::max() : static_cast<To>(whole);
}
inline int __float2int_rn(float x) { return converted<int>(x); }
inline unsigned __float2uint_rn(float x) { return converted<unsigned>(x); }
inline int __double2int_rn(double x) { return converted<int>(x); }
inline unsigned long long __float2ull_rn(float x) { return converted<unsigned long long>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
// By pairs of 16 bits: all ones where they are equal.
inline unsigned __vcmpeq2(unsigned x, unsigned y) {
  const unsigned differ = x ^ y;
  return ((differ & 0xffffU) == 0 ? 0xffffU : 0) | ((differ >> 16) == 0 ? 0xffff0000U : 0);
}

// Their least and most, of mixed types, as CUDA has them.
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::fmax(a, b));
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::fmin(a, b));
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
using std::isfinite;
using std::isnan;
