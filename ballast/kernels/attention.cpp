// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/attention.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "ballast/kernels/attention_paths.h"

namespace ballast::kernels {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

QueriesKeysValues split_heads(const Tensor& qkv, int64_t rows, int64_t heads) {
  const int64_t width = qkv.size(1) / 3;
  TORCH_CHECK(
      qkv.dim() == 2 && qkv.size(1) == 3 * width && width % heads == 0 && qkv.size(0) % rows == 0,
      "attention: want qkv [B * S, 3 D] with ", rows, " rows and ", heads, " heads, got ",
      qkv.sizes());
  const Tensor parts = qkv.view({rows, qkv.size(0) / rows, 3, heads, width / heads})
                           .transpose(1, 3);  // [B, H, 3, S, D/H]
  return {parts.select(2, 0), parts.select(2, 1), parts.select(2, 2)};
}

namespace {

enum class Kernel : int64_t { kComposed, kCpu, kFlash, kCudnn };

// What cuDNN refused in this process. Asked for the same again, it may crash instead of refusing.
class CudnnRefusals {
 public:
  static CudnnRefusals& of_process() {
    static CudnnRefusals refusals;
    return refusals;
  }
  bool has(const Tensor& queries) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(refused_, key(queries)) != refused_.end();
  }
  void add(const Tensor& queries, const c10::Error& reason) {
    TORCH_WARN("cuDNN refuses attention of [B, H, S, D/H] = ", queries.sizes(),
               ", flash attention takes its place: ", reason.what_without_backtrace());
    const std::lock_guard lock(mutex_);
    refused_.push_back(key(queries));
  }

 private:
  using Key = std::array<int64_t, 5>;
  static Key key(const Tensor& queries) {
    return {queries.size(0), queries.size(1), queries.size(2), queries.size(3),
            static_cast<int64_t>(queries.scalar_type())};
  }
  std::mutex mutex_;
  std::vector<Key> refused_;
};

// cuDNN's is the fastest for whole tiles of 64 positions; it has no way back with fixed order.
bool suits_cudnn(const Tensor& queries) {
  return queries.size(2) % 64 == 0 && queries.size(3) % 8 == 0 && queries.size(3) <= 128 &&
         at::globalContext().userEnabledCuDNNSDP() &&
         !at::globalContext().deterministicAlgorithms() &&
         !CudnnRefusals::of_process().has(queries);
}

Kernel kernel_for(const QueriesKeysValues& qkv) {
  const auto& [queries, keys, values] = qkv;
  const auto choice = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(queries, keys, values, std::nullopt, 0.0, /*is_causal=*/true));
  if (choice != at::SDPBackend::flash_attention && choice != at::SDPBackend::cudnn_attention)
    return Kernel::kComposed;
  if (queries.is_cpu()) return Kernel::kCpu;
  // libtorch pads other sizes of heads; 16-byte accesses need the boundary.
  if (!queries.is_cuda() || queries.size(3) % 8 != 0 ||
      reinterpret_cast<uintptr_t>(queries.const_data_ptr()) % 16 != 0)
    return Kernel::kComposed;
  return suits_cudnn(queries) ? Kernel::kCudnn : Kernel::kFlash;
}

// What comes of queries, keys and values, and what the way back needs of it.
struct Mixed {
  Kernel kernel;
  Tensor values;             // [B, H, S, D/H], of which [B, S, H, D/H] is contiguous
  Tensor logsumexp;          // [B, H, S]
  Tensor seed, offset = {};  // of a dropout that does not take place; the kernels want them
};

Mixed mix_by_flash(const QueriesKeysValues& qkv) {
  const auto result = at::_scaled_dot_product_flash_attention(qkv.queries, qkv.keys, qkv.values,
                                                              0.0, /*is_causal=*/true);
  return {Kernel::kFlash, std::get<0>(result), std::get<1>(result), std::get<6>(result),
          std::get<7>(result)};
}

Mixed mix_by_cudnn(const QueriesKeysValues& qkv, bool going_back) {
  try {
    const auto result = at::_scaled_dot_product_cudnn_attention(
        qkv.queries, qkv.keys, qkv.values, std::nullopt, /*compute_log_sumexp=*/going_back, 0.0,
        /*is_causal=*/true);
    return {Kernel::kCudnn, std::get<0>(result), std::get<1>(result), std::get<6>(result),
            std::get<7>(result)};
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    CudnnRefusals::of_process().add(qkv.queries, error);
    return mix_by_flash(qkv);
  }
}

Mixed mix_on_cpu(const QueriesKeysValues& qkv) {
  const auto [values, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      qkv.queries, qkv.keys, qkv.values, 0.0, /*is_causal=*/true);
  return {Kernel::kCpu, values, logsumexp, {}};
}

Mixed mix(Kernel kernel, const QueriesKeysValues& qkv, bool going_back) {
  if (kernel == Kernel::kCpu) return mix_on_cpu(qkv);
  return kernel == Kernel::kCudnn ? mix_by_cudnn(qkv, going_back) : mix_by_flash(qkv);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Gradients back_by_flash(const Tensor& dmixed, const QueriesKeysValues& qkv, const Mixed& mixed) {
  const int64_t context = qkv.queries.size(2);
  return at::_scaled_dot_product_flash_attention_backward(
      dmixed, qkv.queries, qkv.keys, qkv.values, mixed.values, mixed.logsumexp, {}, {}, context,
      context, 0.0, /*is_causal=*/true, mixed.seed, mixed.offset);
}

Gradients back_by_cudnn(const Tensor& dmixed, const QueriesKeysValues& qkv, const Mixed& mixed) {
  const int64_t context = qkv.queries.size(2);
  if (!CudnnRefusals::of_process().has(qkv.queries)) {
    try {
      return at::_scaled_dot_product_cudnn_attention_backward(
          dmixed, qkv.queries, qkv.keys, qkv.values, mixed.values, mixed.logsumexp, mixed.seed,
          mixed.offset, {}, {}, {}, context, context, 0.0, /*is_causal=*/true);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      CudnnRefusals::of_process().add(qkv.queries, error);
    }
  }
  return back_by_flash(dmixed, qkv, mix_by_flash(qkv));
}

Gradients back(const Tensor& dmixed, const QueriesKeysValues& qkv, const Mixed& mixed) {
  if (mixed.kernel == Kernel::kCpu) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dmixed, qkv.queries, qkv.keys, qkv.values, mixed.values, mixed.logsumexp, 0.0,
        /*is_causal=*/true);
  }
  return mixed.kernel == Kernel::kCudnn ? back_by_cudnn(dmixed, qkv, mixed)
                                        : back_by_flash(dmixed, qkv, mixed);
}

// [B, H, S, D/H] -> [B * S, D], a view where heads of a position lie side by side.
Tensor side_by_side(const Tensor& heads) {
  return heads.transpose(1, 2).reshape(
      {heads.size(0) * heads.size(2), heads.size(1) * heads.size(3)});
}

// Autograd would make three gradients by qkv that are zero elsewhere, and add them.
struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t rows, int64_t heads,
                        Kernel kernel) {
    const Mixed mixed = mix(kernel, split_heads(qkv, rows, heads), qkv.requires_grad());
    context->save_for_backward({qkv, mixed.values, mixed.logsumexp, mixed.seed, mixed.offset});
    context->saved_data["shape"] = std::vector<int64_t>{rows, heads};
    context->saved_data["kernel"] = static_cast<int64_t>(mixed.kernel);
    return side_by_side(mixed.values);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto shape = context->saved_data["shape"].toIntVector();
    const Mixed mixed{static_cast<Kernel>(context->saved_data["kernel"].toInt()), saved[1],
                      saved[2], saved[3], saved[4]};
    // cuDNN's plan is for the layout it saw first: always this one.
    const Tensor dmixed =
        dy[0].contiguous().view({shape[0], -1, shape[1], mixed.values.size(3)}).transpose(1, 2);
    const auto [dq, dk, dv] = back(dmixed, split_heads(saved[0], shape[0], shape[1]), mixed);
    return {at::cat({side_by_side(dq), side_by_side(dk), side_by_side(dv)}, 1), {}, {}, {}};
  }
};

struct TiledAttentionFunction : torch::autograd::Function<TiledAttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t rows, int64_t heads) {
    const TiledAttention::Mixed mixed = TiledAttention::forward(qkv, rows, heads);
    context->save_for_backward({qkv, mixed.values, mixed.logsumexp});
    return mixed.values;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    return {TiledAttention::backward(dy[0].contiguous(), saved[0], {saved[1], saved[2]}), {}, {}};
  }
};

}  // namespace

Tensor causal_attention(const Tensor& qkv, int64_t rows, int64_t heads) {
  const QueriesKeysValues parts = split_heads(qkv, rows, heads);
  if (TiledAttention::suits(qkv, rows, heads))
    return TiledAttentionFunction::apply(qkv, rows, heads);
  const Kernel kernel = kernel_for(parts);
  if (kernel != Kernel::kComposed) return FusedAttention::apply(qkv, rows, heads, kernel);
  return side_by_side(at::scaled_dot_product_attention(parts.queries, parts.keys, parts.values,
                                                       std::nullopt, 0.0, /*is_causal=*/true));
}

}  // namespace ballast::kernels
