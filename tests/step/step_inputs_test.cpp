// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::step {
namespace {

using at::Tensor;

StepInputs::Make times(int64_t factor) {
  return [factor](uint64_t step) {
    return at::full({3}, factor * static_cast<int64_t>(step), at::kLong);
  };
}

TEST(StepInputs, AreMadeForTheStep) {
  StepInputs inputs(at::kCPU);
  for (uint64_t step = 5; step < 8; ++step) {
    inputs.begin(step);
    EXPECT_EQ(inputs.take(times(1))[2].item<int64_t>(), static_cast<int64_t>(step));
    EXPECT_EQ(inputs.take(times(10))[0].item<int64_t>(), 10 * static_cast<int64_t>(step));
  }
  EXPECT_EQ(take_input({.inputs = &inputs}, times(1))[0].item<int64_t>(), 7);
  EXPECT_EQ(take_input({.step = 9}, times(1))[0].item<int64_t>(), 9);
}

TEST(StepInputsCuda, KeepTheirPlaces) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  StepInputs inputs(at::kCUDA);
  inputs.begin(1);
  const Tensor first = inputs.take(times(1)), second = inputs.take(times(10));
  EXPECT_EQ(second[0].item<int64_t>(), 10);
  inputs.begin(2);
  EXPECT_EQ(inputs.take(times(1)).data_ptr(), first.data_ptr());
  EXPECT_EQ(inputs.take(times(10)).data_ptr(), second.data_ptr());
  EXPECT_EQ(first[1].item<int64_t>(), 2);
  inputs.fill(3);
  EXPECT_EQ(first[1].item<int64_t>(), 3);
  EXPECT_EQ(second[1].item<int64_t>(), 30);
  inputs.begin_recording();
  EXPECT_EQ(inputs.take(times(7)).data_ptr(), first.data_ptr());
  EXPECT_EQ(first[1].item<int64_t>(), 3) << "nothing is made while a step is recorded";
  inputs.take(times(10));
  EXPECT_THROW(inputs.take(times(1)), c10::Error);
  inputs.fill(4);
  EXPECT_EQ(first[1].item<int64_t>(), 28);
}

}  // namespace
}  // namespace ballast::step
