// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu_assignment_run.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <vector>

#include "ballast/experts/assigner.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/gpu_graph.h"
#include "ballast/system/error.h"

namespace ballast::cli {
namespace {

at::ScalarType scalar_type(assignment::ScoreType type) {
  switch (type) {
    case assignment::ScoreType::kFloat32:
      return at::kFloat;
    case assignment::ScoreType::kBFloat16:
      return at::kBFloat16;
    case assignment::ScoreType::kFloat16:
      return at::kHalf;
  }
  throw std::invalid_argument("scalar_type: not a ScoreType");
}

template <typename Value>
void copy_back(const at::Tensor& tensor, std::vector<Value>& out) {
  const at::Tensor host = tensor.cpu();
  out.assign(host.const_data_ptr<Value>(), host.const_data_ptr<Value>() + host.numel());
}

at::Device gpu_device() {
  const kernels::CudaPlugin plugin = kernels::load_cuda_plugin();
  if (!plugin.loaded || !at::hasCUDA() || !at::globalContext().hasCUDA())
    fail("--device cuda: no GPU can be used: {} (`ballast doctor` tells more)",
         plugin.loaded ? "none is visible to the driver" : plugin.reason);
  return {at::kCUDA, 0};
}

constexpr int kLaunches = 10;

class GpuRun final : public AssignmentRun {
 public:
  GpuRun(assignment::SolverKind kind, double gap) : kind_(kind), gap_(gap), device_(gpu_device()) {
    if (kind == assignment::SolverKind::kSinkhorn)
      fail("sinkhorn runs on the CPU only: choose exact, auction or greedy with --device cuda");
    const c10::impl::VirtualGuardImpl gpu(device_.type());
    gpu.exchangeStream(gpu.getStreamFromGlobalPool(device_));  // the default one cannot be recorded
  }

  void load(std::span<const assignment::AssignmentProblem> problems) override {
    std::vector<at::Tensor> scores;
    for (const assignment::AssignmentProblem& problem : problems) {
      const assignment::ScoreMatrix& matrix = problem.scores;
      assignment::check_shape(problem);
      scores.push_back(to_device(matrix.data, {matrix.tokens, matrix.experts},
                                 {matrix.token_stride, matrix.expert_stride},
                                 scalar_type(matrix.type)));
    }
    scores_ = scores.size() == 1 ? scores.front().unsqueeze(0) : at::stack(scores);
    const assignment::AssignmentProblem& first = problems.front();
    experts_ = first.scores.experts;
    if (!first.counted.empty())
      inputs_.counted = to_device(first.counted.data(), {first.scores.tokens}, {1}, at::kByte);
    assigner_.emplace(experts::AssignOptions{
        .solver = kind_, .bounds = first.bounds, .non_finite = first.non_finite, .gap = gap_});
    assigner_->check(assigner_->assign(scores_, inputs_));  // a first call loads the kernels
  }

  double solve(std::span<const double> start_prices,
               std::vector<assignment::Assignment>& results) override {
    inputs_.start_prices = at::Tensor();
    if (!start_prices.empty()) {
      if (std::ssize(start_prices) != experts_)
        fail("{} start prices, but scores of {} experts", start_prices.size(), experts_);
      inputs_.start_prices = to_device(start_prices.data(), {experts_}, {1}, at::kDouble);
    }
    experts::TensorAssignment found;
    const auto begin = kernels::make_gpu_event(), end = kernels::make_gpu_event();
    const auto graph = kernels::make_gpu_graph(nullptr);
    graph->record([&] {
      begin->record();
      for (int i = 0; i < kLaunches; ++i) found = assigner_->assign(scores_, inputs_);
      end->record();
    });
    graph->replay();
    end->synchronize();
    assigner_->check(found);
    bring_back(found, results);
    return 1e3 * begin->seconds_until(*end) / kLaunches;
  }

 private:
  at::Tensor to_device(const void* data, at::IntArrayRef sizes, at::IntArrayRef strides,
                       at::ScalarType type) const {
    const auto options = at::TensorOptions().dtype(type);
    if (c10::multiply_integers(sizes) == 0) return at::empty(sizes, options.device(device_));
    auto* memory = const_cast<void*>(data);  // from_blob takes no const
    return at::from_blob(memory, sizes, strides, options).to(device_);
  }

  static void bring_back(const experts::TensorAssignment& found,
                         std::vector<assignment::Assignment>& results) {
    const std::vector<assignment::AssignmentStatus> all = experts::read_status(found);
    results.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      assignment::Assignment& result = results[i];
      copy_back(found.expert_of_token[at], result.expert_of_token);
      copy_back(found.tokens_by_expert[at], result.tokens_by_expert);
      copy_back(found.place_of_token[at], result.place_of_token);
      copy_back(found.loads[at], result.loads);
      copy_back(found.prices[at], result.prices);
      result.certificate = {.valid = all[i].valid != 0,
                            .primal = all[i].primal,
                            .dual = all[i].dual,
                            .gap = all[i].gap,
                            .blind = all[i].blind};
      result.replaced_scores = all[i].replaced;
    }
  }

  assignment::SolverKind kind_;
  double gap_;
  at::Device device_;
  int64_t experts_ = 0;
  at::Tensor scores_;
  experts::AssignInputs inputs_;
  std::optional<experts::Assigner> assigner_;
};

}  // namespace

std::unique_ptr<AssignmentRun> make_gpu_assignment_run(assignment::SolverKind kind, double gap) {
  return std::make_unique<GpuRun>(kind, gap);
}

}  // namespace ballast::cli
