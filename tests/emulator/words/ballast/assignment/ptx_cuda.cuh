// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulator/cuda_on_cpu.h"

// In place of ballast/assignment/ptx_cuda.cuh: what the instructions there do.
namespace ballast::assignment {

// Two units in the last place are lost, as on a GPU; numbers too small to be ordinary are zero.
inline float fast_exp2(float x) {
  const float y = std::exp2(x);
  return std::fabs(y) < 0x1p-126F ? 0.0F : y;
}

inline float larger(float x, float y) {
  return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);
}

struct LoadedMatrix {
  const __nv_bfloat16* at;
  unsigned* r;
};
inline void finish_load(unsigned, emulator::Operands& operands) {
  const auto bits = [](const __nv_bfloat16* at) {
    uint16_t number = 0;
    std::memcpy(&number, at, sizeof(number));
    return static_cast<unsigned>(number);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      // Row `lane / 4` of the transposed matrix is a column of what lanes 8 matrix + ... point at.
      const auto row = [&](int i) {
        return static_cast<LoadedMatrix*>(operands[8 * matrix + i])->at;
      };
      const int first = lane % 4 * 2, column = lane / 4;
      static_cast<LoadedMatrix*>(operands[lane])->r[matrix] =
          bits(row(first) + column) | bits(row(first + 1) + column) << 16;
    }
  }
}
inline void load_transposed(unsigned (&r)[4], const __nv_bfloat16* at) {
  // The reads are this lane's, for sanitizers too.
  for (int i = 0; i < 8; ++i)
    static_cast<void>(*const_cast<const volatile __nv_bfloat16_raw*>(
        reinterpret_cast<const __nv_bfloat16_raw*>(at + i)));
  LoadedMatrix matrix{at, r};
  emulator::meet_warp(0xffffffffU, "ldmatrix", &matrix, finish_load);
}

struct Product {
  float* d;
  const unsigned* a;
  unsigned b[2];
};
inline void finish_product(unsigned, emulator::Operands& operands) {
  const auto half = [](unsigned pair, int which) {
    return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000U);
  };
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<Product*>(operands[lane]);
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 8; ++i)
      a[group + i / 2 % 2 * 8][2 * in_group + i % 2 + i / 4 * 8] = half(own.a[i / 2], i % 2);
    for (int i = 0; i < 4; ++i)
      b[2 * in_group + i % 2 + i / 2 * 8][group] = half(own.b[i / 2], i % 2);
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto& own = *static_cast<Product*>(operands[lane]);
    for (int i = 0; i < 4; ++i) {
      float sum = own.d[i];
      for (int k = 0; k < 16; ++k) sum += a[lane / 4 + i / 2 * 8][k] * b[k][2 * (lane % 4) + i % 2];
      own.d[i] = sum;
    }
  }
}
inline void multiply_add(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  Product product{d, a, {b0, b1}};
  emulator::meet_warp(0xffffffffU, "mma", &product, finish_product);
}

template <int kThreads>
void sync_first() {
  emulator::meet_some(1, kThreads);
}

inline void meet_at(unsigned* counter, unsigned goal) { emulator::meet_at(counter, goal); }
inline void meet_by_fences(unsigned* counter, unsigned goal) { emulator::meet_at(counter, goal); }

}  // namespace ballast::assignment
