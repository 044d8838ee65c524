// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/parameter.h"

namespace ballast::kernels::test {

using at::Tensor;

struct Case {
  at::DeviceType device;
  at::ScalarType dtype;
  double tolerance = 0;  // relative to the largest element: rounding of about a hundred terms
};

// A kernel against its plain twin, written with libtorch's own differentiable operations in double.
class Twins : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA) {
      ASSERT_TRUE(load_cuda_plugin().loaded);
    }
    at::manual_seed(1);
  }
  at::TensorOptions longs() const { return at::device(GetParam().device).dtype(at::kLong); }
  Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape, at::kDouble).to(at::Device(GetParam().device), GetParam().dtype);
  }
  Parameter parameter(at::IntArrayRef shape) const { return {random(shape), random(shape)}; }

  // A copy in double on the CPU, where the twins compute.
  static Tensor exact(const Tensor& x) { return x.detach().cpu().to(at::kDouble, false, true); }

  // `added`: what `want` is a sum with, where that is rounded by itself.
  void expect_close(const Tensor& got, const Tensor& want, const char* what,
                    const Tensor& added = {}) const {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    if (want.numel() == 0) return;
    const auto largest = [](const Tensor& x) { return exact(x).abs().max().item<double>(); };
    const double scale = largest(want) + (added.defined() ? largest(added) : 0) + 1e-30;
    EXPECT_LE(largest(exact(got) - exact(want)) / scale, GetParam().tolerance) << what;
  }

  // Runs `fast` on parameters and `plain` on leaves with the same values; compares results, the
  // gradient by x, and what was added to each parameter's gradient (which did not start at zero).
  void compare(
      Tensor x, std::vector<Parameter> parameters, const std::function<Tensor(const Tensor&)>& fast,
      const std::function<Tensor(const Tensor&, const std::vector<Tensor>&)>& plain) const {
    std::vector<Tensor> leaves, before;
    for (const Parameter& p : parameters) {
      leaves.push_back(exact(p.value).requires_grad_());
      before.push_back(exact(p.gradient));
    }
    Tensor x1 = x.clone().requires_grad_(), x2 = exact(x).requires_grad_();
    const Tensor y1 = fast(x1), y2 = plain(x2, leaves);
    expect_close(y1, y2, "result");
    const Tensor dy = random(y2.sizes());
    torch::autograd::backward({y1}, {dy});
    torch::autograd::backward({y2}, {exact(dy)});
    expect_close(x1.grad(), x2.grad(), "input gradient");
    for (size_t i = 0; i < parameters.size(); ++i) {
      expect_close(parameters[i].gradient, before[i] + leaves[i].grad(), "parameter gradient");
    }
  }
};

inline std::string dtype_name(const ::testing::TestParamInfo<Case>& info) {
  return c10::toString(info.param.dtype);
}

// Where kernels are compared with their twins. bf16 has 8 bits: results and intermediate values are
// each rounded by up to 2^-9.
inline auto cpu_cases() {
  return ::testing::Values(Case{at::kCPU, at::kDouble, 1e-12}, Case{at::kCPU, at::kFloat, 5e-6});
}
inline auto cuda_cases() {
  return ::testing::Values(Case{at::kCUDA, at::kDouble, 1e-12}, Case{at::kCUDA, at::kFloat, 1e-5},
                           Case{at::kCUDA, at::kBFloat16, 2e-2});
}

}  // namespace ballast::kernels::test
