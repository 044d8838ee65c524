// SPDX-License-Identifier: Apache-2.0
// What a BASE layer does with its rows, recorded as one CUDA graph: recording fails where an
// operation waits for the GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/experts/expert_mlp.h"
#include "ballast/experts/spread_rows.h"
#include "ballast/kernels/cuda_plugin.h"
#include "tests/experts/cuda_graph.h"

namespace ballast::experts {
namespace {

using at::Tensor;

struct Results {
  Tensor y, dx;
};

class ExpertsCuda : public ::testing::TestWithParam<std::vector<int64_t>> {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::load_cuda_plugin().loaded); }
};

TEST_P(ExpertsCuda, NeverWaitForTheGpu) {
  at::manual_seed(1);
  const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
  const auto parameter = [&](at::IntArrayRef shape) {
    return kernels::Parameter{at::randn(shape, options) * 0.1, at::zeros(shape, options)};
  };
  const std::vector<int64_t>& loads = GetParam();
  const auto experts = static_cast<int64_t>(loads.size()), rows = int64_t{48}, width = int64_t{32};
  const kernels::Parameter norm = parameter({experts, width}),
                           norm_bias = parameter({experts, width}),
                           up = parameter({experts, 64, width}), up_bias = parameter({experts, 64}),
                           down = parameter({experts, width, 64}),
                           down_bias = parameter({experts, width}),
                           embeddings = parameter({experts, width});
  const Tensor order = at::randperm(rows, at::kLong), there = order.to(at::kCUDA),
               back = order.argsort().to(at::kCUDA);
  const Tensor x = at::randn({rows, width}, options).requires_grad_(),
               dy = at::randn({rows, width}, options);
  const auto compute = [&]() -> Results {
    const Tensor y = gated_experts({x, loads, there, back},
                                   {{norm, norm_bias, up, up_bias, down, down_bias}}, embeddings);
    return {y.detach(), torch::autograd::grad({y}, {x}, {dy})[0]};
  };
  const Results expected = compute();
  Results recorded;
  CudaGraph graph([&] { recorded = compute(); });
  recorded.y.zero_();
  recorded.dx.zero_();
  at::zeros({1}, options).item();  // both are done before the graph, which is on another stream
  graph.replay();
  EXPECT_TRUE(at::equal(recorded.y, expected.y));
  EXPECT_TRUE(at::equal(recorded.dx, expected.dx));
}

// Two places for each token, and loads that only the device knows.
TEST_P(ExpertsCuda, NeverWaitForTheGpuToTellTheirRows) {
  at::manual_seed(2);
  const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
  const auto parameter = [&](at::IntArrayRef shape) {
    return kernels::Parameter{at::randn(shape, options) * 0.1, at::zeros(shape, options)};
  };
  const auto experts = static_cast<int64_t>(GetParam().size()), rows = int64_t{48},
             width = int64_t{32};
  const kernels::Parameter norm = parameter({experts, width}),
                           norm_bias = parameter({experts, width}),
                           up = parameter({experts, 64, width}), up_bias = parameter({experts, 64}),
                           down = parameter({experts, width, 64}),
                           down_bias = parameter({experts, width});
  const ExpertRows loads(at::tensor(GetParam(), at::kLong).cumsum(0).to(at::kCUDA, at::kInt));
  const Tensor order = at::randperm(rows, at::kLong), source = order.div(2, "floor").to(at::kCUDA),
               places = order.argsort().view({rows / 2, 2}).to(at::kCUDA);
  const Tensor x = at::randn({rows / 2, width}, options).requires_grad_(),
               weights = at::rand({rows / 2, 2}, options.dtype(at::kFloat)).requires_grad_(),
               dy = at::randn({rows / 2, width}, options);
  const auto compute = [&]() -> Results {
    const Tensor h = spread_rows(x, source, places);
    const Tensor stack =
        expert_feed_forward(h, loads, {norm, norm_bias, up, up_bias, down, down_bias});
    const Tensor y = mix_rows(x, stack, places, source, weights);
    return {y.detach(), torch::autograd::grad({y}, {x, weights}, {dy})[0]};
  };
  const Results expected = compute();
  Results recorded;
  CudaGraph graph([&] { recorded = compute(); });
  recorded.y.zero_();
  recorded.dx.zero_();
  at::zeros({1}, options).item();
  graph.replay();
  EXPECT_TRUE(at::equal(recorded.y, expected.y));
  EXPECT_TRUE(at::equal(recorded.dx, expected.dx));
}

INSTANTIATE_TEST_SUITE_P(Loads, ExpertsCuda,
                         ::testing::Values(std::vector<int64_t>{16, 16, 16},
                                           std::vector<int64_t>{20, 0, 28},
                                           std::vector<int64_t>{47, 0, 1}));

}  // namespace
}  // namespace ballast::experts
