// SPDX-License-Identifier: Apache-2.0
// onednn_isa [LIMIT]: one convolution by oneDNN, which with ONEDNN_VERBOSE=1 names the instruction
// set it uses. LIMIT is set in a constructor, as ballast/system/onednn_limit.cpp does it.
#include <ATen/ops/mkldnn_convolution.h>
#include <ATen/ops/ones.h>

#include <cstdlib>

namespace {

// Those of this program run after those of every library it loads: this is as late as it gets.
__attribute__((constructor)) void set_limit(int argc, char** argv, char**) {
  if (argc > 1) ::setenv("ONEDNN_MAX_CPU_ISA", argv[1], 1);
}

}  // namespace

int main() {
  const at::Tensor image = at::ones({1, 16, 8, 8});
  const at::Tensor filter = at::ones({16, 16, 3, 3});
  const at::Tensor result =
      at::mkldnn_convolution(image, filter, {}, {0, 0}, {1, 1}, {1, 1}, /*groups=*/1);
  return result.sum().item<float>() == 16 * 36 * 16 * 9 ? 0 : 1;
}
