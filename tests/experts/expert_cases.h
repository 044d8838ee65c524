// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/parameter.h"

namespace ballast::experts {

struct ExpertCase {
  at::DeviceType device;
  at::ScalarType dtype;
  double tolerance;  // relative to the largest element
};

inline std::string case_name(const ::testing::TestParamInfo<ExpertCase>& info) {
  return c10::toString(info.param.dtype);
}

// Rounding of sums of about a hundred terms. bf16 has 8 bits: results and intermediate values are
// each rounded by up to 2^-9, three or four of them in a row.
inline auto cpu_cases() {
  return ::testing::Values(ExpertCase{at::kCPU, at::kDouble, 1e-12},
                           ExpertCase{at::kCPU, at::kFloat, 5e-6},
                           ExpertCase{at::kCPU, at::kBFloat16, 2e-2});
}
inline auto cuda_cases() {
  return ::testing::Values(ExpertCase{at::kCUDA, at::kDouble, 1e-12},
                           ExpertCase{at::kCUDA, at::kFloat, 1e-5},
                           ExpertCase{at::kCUDA, at::kBFloat16, 2e-2});
}

// Equal, unequal and zero rows. The last two have enough for several threads, which meet within
// an expert or just before its end.
inline const std::vector<std::vector<int64_t>>& expert_loads() {
  static const std::vector<std::vector<int64_t>> loads{
      {13, 13, 13, 13}, {7, 20, 1, 9}, {0, 30, 0, 5},       {8, 8, 0, 8},
      {0, 0, 0, 0},     {40, 0, 0, 0}, {1900, 100, 0, 200}, {665, 667, 1, 667}};
  return loads;
}

inline int64_t total(const std::vector<int64_t>& rows_of_expert) {
  int64_t sum = 0;
  for (const int64_t rows : rows_of_expert) sum += rows;
  return sum;
}

class ExpertKernels : public ::testing::TestWithParam<ExpertCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA) {
      ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    }
    at::manual_seed(1);
    at::set_num_threads(3);
  }
  void TearDown() override { at::set_num_threads(threads_); }

  at::Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape, at::kDouble).to(at::Device(GetParam().device), GetParam().dtype);
  }
  at::Tensor longs(at::ArrayRef<int64_t> values) const {
    return at::tensor(values, at::kLong).to(GetParam().device);
  }

  // A copy in double on the CPU, where the twins compute.
  static at::Tensor exact(const at::Tensor& x) {
    return x.detach().cpu().to(at::kDouble, false, true).contiguous();
  }

  void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) const {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    if (want.numel() == 0) return;
    const double scale = exact(want).abs().max().item<double>() + 1e-30;
    EXPECT_LE((exact(got) - exact(want)).abs().max().item<double>() / scale, GetParam().tolerance)
        << what;
  }

 private:
  const int threads_ = at::get_num_threads();
};

// A stack of weights whose experts lie apart, with NaN between them: whoever reads it shows it.
class SpacedParameter {
 public:
  SpacedParameter(const at::Tensor& value, const at::Tensor& gradient)
      : values_(spaced(value)), gradients_(spaced(gradient)) {
    parameter = {view_of(values_, value), view_of(gradients_, gradient)};
  }
  void expect_gaps_untouched() const {
    for (const at::Tensor& buffer : {values_, gradients_}) {
      EXPECT_TRUE(buffer.narrow(1, buffer.size(1) - kGap, kGap).isnan().all().item<bool>());
    }
  }

  kernels::Parameter parameter;

 private:
  static constexpr int64_t kGap = 8;
  static at::Tensor spaced(const at::Tensor& x) {
    return at::full({x.size(0), x[0].numel() + kGap}, std::numeric_limits<double>::quiet_NaN(),
                    x.options());
  }
  static at::Tensor view_of(const at::Tensor& buffer, const at::Tensor& x) {
    std::vector<int64_t> strides = x.strides().vec();
    strides[0] = buffer.size(1);
    return buffer.as_strided(x.sizes(), strides).copy_(x);
  }
  at::Tensor values_, gradients_;
};

}  // namespace ballast::experts
