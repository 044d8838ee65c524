// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast {

// Loops over fp32 arrays that the compiler turns into AVX-512, AVX2 or plain code; the processor's
// best is chosen when the library is loaded.

float vector_maximum(const float* x, int64_t n);
// x <- exp(x - shift), returns the sum. REQUIRES: x - shift <= 0. Relative error under 2e-7;
// results under 1e-37 become 0.
float vector_exponentiate(float* x, int64_t n, float shift);

}  // namespace ballast
