// SPDX-License-Identifier: Apache-2.0
// The gradient of cuDNN's attention, asked of cuDNN itself: libtorch's operation would write those
// by queries, keys and values into tensors of their own.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

// Its header asks for a library of JSON otherwise.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

namespace ballast::kernels {
namespace {

namespace fe = cudnn_frontend;
using at::Tensor;

// Tensors of a call, each a view [B, H, S, W]; logsumexp is [B, H, S, 1].
enum Role : size_t { kQueries, kKeys, kValues, kMixed, kDmixed, kDqueries, kDkeys, kDvalues };
using Views = std::array<Tensor, 8>;

// What a plan is for: the device, the type, all sizes and strides.
std::vector<int64_t> key_of(const Views& views) {
  std::vector<int64_t> key = {views[kQueries].get_device(),
                              static_cast<int64_t>(views[kQueries].scalar_type())};
  for (const Tensor& view : views) {
    key.insert(key.end(), view.sizes().begin(), view.sizes().end());
    key.insert(key.end(), view.strides().begin(), view.strides().end());
  }
  return key;
}

class Plan {
 public:
  // Null: cuDNN has none.
  static std::unique_ptr<Plan> make(const Views& views) {
    auto plan = std::unique_ptr<Plan>(new Plan());
    plan->describe(views);
    fe::graph::Graph& graph = plan->graph_;
    const cudnnHandle_t handle = at::native::getCudnnHandle();
    if (graph.validate().is_bad() || graph.build_operation_graph(handle).is_bad() ||
        graph.create_execution_plans({fe::HeurMode_t::A}).is_bad() ||
        graph.check_support(handle).is_bad() || graph.build_plans(handle).is_bad() ||
        graph.get_workspace_size(plan->workspace_bytes_).is_bad())
      return nullptr;
    return plan;
  }

  void run(const Views& views, const Tensor& logsumexp) {
    std::unordered_map<int64_t, void*> places = {{kLogsumexpNumber, logsumexp.data_ptr()},
                                                 {kScaleNumber, &scale_}};
    for (size_t role = 0; role < views.size(); ++role)
      places[number_of(role)] = views[role].data_ptr();
    const Tensor workspace = at::empty({workspace_bytes_}, logsumexp.options().dtype(at::kByte));
    auto status = graph_.execute(at::native::getCudnnHandle(), places, workspace.data_ptr());
    TORCH_CHECK(status.is_good(), "cuDNN's attention, backward: ", status.get_message());
  }

 private:
  static constexpr int64_t kLogsumexpNumber = 100, kScaleNumber = 101;
  static int64_t number_of(size_t role) { return static_cast<int64_t>(role) + 1; }

  void describe(const Views& views) {
    const Tensor& queries = views[kQueries];
    graph_
        .set_io_data_type(queries.scalar_type() == at::kHalf ? fe::DataType_t::HALF
                                                             : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto input = [&](size_t role) {
      return graph_.tensor(fe::graph::Tensor_attributes()
                               .set_uid(number_of(role))
                               .set_dim(views[role].sizes().vec())
                               .set_stride(views[role].strides().vec()));
    };
    const int64_t heads = queries.size(1), length = queries.size(2);
    const auto logsumexp = graph_.tensor(fe::graph::Tensor_attributes()
                                             .set_uid(kLogsumexpNumber)
                                             .set_dim({queries.size(0), heads, length, 1})
                                             .set_stride({heads * length, length, 1, 1})
                                             .set_data_type(fe::DataType_t::FLOAT));
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(queries.size(3))));
    const auto scale = graph_.tensor(fe::graph::Tensor_attributes()
                                         .set_uid(kScaleNumber)
                                         .set_dim({1, 1, 1, 1})
                                         .set_stride({1, 1, 1, 1})
                                         .set_is_pass_by_value(true)
                                         .set_data_type(fe::DataType_t::FLOAT));
    const auto gradients = graph_.sdpa_backward(input(kQueries), input(kKeys), input(kValues),
                                                input(kMixed), input(kDmixed), logsumexp,
                                                fe::graph::SDPA_backward_attributes()
                                                    .set_name("attention")
                                                    .set_causal_mask(true)
                                                    .set_attn_scale(scale));
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& view = views[kDqueries + i];
      gradients[i]
          ->set_output(true)
          .set_uid(number_of(kDqueries + i))
          .set_dim(view.sizes().vec())
          .set_stride(view.strides().vec());
    }
  }

  fe::graph::Graph graph_;
  float scale_ = 0;
  int64_t workspace_bytes_ = 0;
};

// For all threads, one at a time.
class Plans {
 public:
  static Plans& of_process() {
    static Plans plans;
    return plans;
  }
  bool run(const Views& views, const Tensor& logsumexp) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = plans_.try_emplace(key_of(views));
    if (is_new) found->second = Plan::make(views);
    if (found->second == nullptr) return false;
    found->second->run(views, logsumexp);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::unique_ptr<Plan>> plans_;  // null: cuDNN refused
};

bool attention_gradient_cuda(const Tensor& dmixed, const Tensor& queries, const Tensor& keys,
                             const Tensor& values, const Tensor& mixed, const Tensor& logsumexp,
                             const Tensor& dqueries, const Tensor& dkeys, const Tensor& dvalues) {
  const c10::cuda::CUDAGuard guard(queries.device());
  if (!logsumexp.is_contiguous() || logsumexp.scalar_type() != at::kFloat) return false;
  return Plans::of_process().run({queries, keys, values, mixed, dmixed, dqueries, dkeys, dvalues},
                                 logsumexp);
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("attention_gradient", attention_gradient_cuda);
}

}  // namespace ballast::kernels
