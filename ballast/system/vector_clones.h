// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiles a function for AVX-512, AVX2 and plain x86-64; the loader picks the best one there is.
// Not under the thread sanitizer, whose calls in the picking code come before it is loaded, and not
// in builds for one instruction set, with which tests compare.
#if defined(__SANITIZE_THREAD__) || defined(BALLAST_ONLY_INSTRUCTION_SET)
#define BALLAST_VECTOR_CLONES
#else
#define BALLAST_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

// For what such a function calls: a call would leave the instructions it is compiled for.
#define BALLAST_INLINE inline __attribute__((always_inline))
