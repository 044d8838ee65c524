// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiles a function for AVX-512, AVX2 and plain x86-64; the loader picks the best one there is.
#define BALLAST_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
