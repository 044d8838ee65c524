// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

// What CUDA C++ has no word for: all assembly of this room. The emulated GPU replaces this one file
// (tests/emulator).
namespace ballast::assignment {

__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger of two, NaN where one is.
__device__ inline float larger(float x, float y) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(x), "f"(y));
  return most;
}

// Four matrices of 8 x 8, transposed, into the registers of a warp; `at`: this lane's row, in
// shared memory.
__device__ inline void load_transposed(unsigned (&r)[4], const __nv_bfloat16* at) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// d += a b, of 16 x 16 and 16 x 8 numbers, by the tensor cores.
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The first kThreads threads of a block wait for each other.
template <int kThreads>
__device__ inline void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Blocks meet at a counter in device memory, one thread of each: until it has `goal`.
__device__ inline void meet_at(unsigned* counter, unsigned goal) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(1u) : "memory");
  unsigned arrived = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
  } while (static_cast<int>(arrived - goal) < 0);
}

// The same by fences.
__device__ inline void meet_by_fences(unsigned* counter, unsigned goal) {
  __threadfence();
  atomicAdd(counter, 1u);
  while (static_cast<int>(*static_cast<const volatile unsigned*>(counter) - goal) < 0) {
  }
  __threadfence();
}

}  // namespace ballast::assignment
