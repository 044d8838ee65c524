// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/attention.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "ballast/kernels/attention_paths.h"

namespace ballast::kernels {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// By cuDNN, into views that may lie in one tensor. False: it has no such gradient, and nothing was
// written. A plugin that was built without cuDNN's headers has no kernel for it.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "attention_gradient(Tensor dmixed, Tensor queries, Tensor keys, Tensor values, Tensor mixed, "
      "Tensor logsumexp, Tensor(a!) dqueries, Tensor(b!) dkeys, Tensor(c!) dvalues) -> bool");
}

QueriesKeysValues split_heads(const Tensor& qkv, int64_t rows, const Heads& heads) {
  TORCH_CHECK(qkv.dim() == 2 && qkv.size(1) == heads.columns() && qkv.size(0) % rows == 0 &&
                  heads.queries % heads.keys == 0,
              "attention: want qkv [B * S, ", heads.columns(), "] with ", rows, " rows, got ",
              qkv.sizes());
  const Tensor parts =
      qkv.view({rows, qkv.size(0) / rows, heads.queries + 2 * heads.keys, heads.width})
          .transpose(1, 2);  // [B, all heads, S, W]
  return {parts.narrow(1, 0, heads.queries), parts.narrow(1, heads.queries, heads.keys),
          parts.narrow(1, heads.queries + heads.keys, heads.keys)};
}

Tensor for_all_queries(const Tensor& keys, const Heads& heads) {
  if (heads.keys == heads.queries) return keys;
  const int64_t times = heads.queries / heads.keys;
  return keys.unsqueeze(2)
      .expand({-1, -1, times, -1, -1})
      .reshape({keys.size(0), heads.queries, keys.size(2), keys.size(3)});
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
bool suits_cudnn(const Tensor& queries, const Tensor& keys) {
  return queries.size(1) == keys.size(1) && queries.size(2) % 64 == 0 && queries.size(3) % 8 == 0 &&
         queries.size(3) <= 128 && at::globalContext().userEnabledCuDNNSDP() &&
         !at::globalContext().deterministicAlgorithms() &&
         !CudnnRefusals::of_process().has(queries);
}

Kernel kernel_for(const QueriesKeysValues& qkv) {
  const auto& [queries, keys, values] = qkv;
  const auto choice = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(queries, keys, values, std::nullopt, 0.0, /*is_causal=*/true,
                            /*scale=*/std::nullopt,
                            /*enable_gqa=*/queries.size(1) != keys.size(1)));
  if (choice != at::SDPBackend::flash_attention && choice != at::SDPBackend::cudnn_attention)
    return Kernel::kComposed;
  if (queries.is_cpu()) return Kernel::kCpu;
  // libtorch pads other sizes of heads; 16-byte accesses need the boundary.
  if (!queries.is_cuda() || queries.size(3) % 8 != 0 ||
      reinterpret_cast<uintptr_t>(queries.const_data_ptr()) % 16 != 0)
    return Kernel::kComposed;
  return suits_cudnn(queries, keys) ? Kernel::kCudnn : Kernel::kFlash;
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

// The gradient by qkv itself, each part of it written where it belongs; undefined: cuDNN cannot.
Tensor back_side_by_side(const Tensor& dmixed, const Tensor& qkv, int64_t rows, const Heads& heads,
                         const Mixed& mixed) {
  using Op = bool(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                  const Tensor&, const Tensor&, const Tensor&, const Tensor&);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("ballast::attention_gradient", "");
  if (mixed.kernel != Kernel::kCudnn || heads.keys != heads.queries ||
      !op.hasKernelForDispatchKey(c10::DispatchKey::CUDA))
    return {};
  Tensor dqkv = at::empty_like(qkv);
  const auto [queries, keys, values] = split_heads(qkv, rows, heads);
  const auto [dqueries, dkeys, dvalues] = split_heads(dqkv, rows, heads);
  const bool is_written = op.typed<Op>().call(dmixed, queries, keys, values, mixed.values,
                                              mixed.logsumexp, dqueries, dkeys, dvalues);
  return is_written ? dqkv : Tensor();
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

// [B, H, S, W] -> [B * S, H W], a view where heads of a position lie side by side.
Tensor side_by_side(const Tensor& heads) {
  return heads.transpose(1, 2).reshape(
      {heads.size(0) * heads.size(2), heads.size(1) * heads.size(3)});
}

// Sums over the heads that for_all_queries() made of one.
Tensor for_own_keys(const Tensor& d, const Heads& heads) {
  if (heads.keys == heads.queries) return d;
  return d.reshape({d.size(0), heads.keys, heads.queries / heads.keys, d.size(2), d.size(3)})
      .sum(2);
}

// What an attention keeps for the way back, beside its arguments.
enum Saved {
  kQkv,
  kTurned,
  kInverse,
  kCosines,
  kSines,
  kQueryNorm,
  kKeyNorm,
  kMixed,
  kLogsumexp,
  kSeed,
  kOffset
};

void save(AutogradContext* context, const Tensor& qkv, const TurnedHeads& turned,
          const Turning& turning, const Mixed& mixed) {
  // Without a norm the way back does not ask for qkv as it was.
  context->save_for_backward({turning.norms() ? qkv : turned.turned, turned.turned, turned.inverse,
                              turning.cosines, turning.sines, turning.query_norm.value,
                              turning.key_norm.value, mixed.values, mixed.logsumexp, mixed.seed,
                              mixed.offset});
  context->saved_data["sums"] = gradient_sums({turning.query_norm, turning.key_norm});
  context->saved_data["kernel"] = static_cast<int64_t>(mixed.kernel);
}

// The gradient by qkv, from those by queries, keys and values that were turned.
Tensor by_qkv(AutogradContext* context, const tensor_list& saved, const HeadGradients& d,
              const Heads& heads) {
  const auto sums = context->saved_data["sums"].toTensorList();
  const Turning turning{
      saved[kCosines], saved[kSines], {saved[kQueryNorm], sums[0]}, {saved[kKeyNorm], sums[1]}};
  if (turning.is_nothing()) {
    return at::cat({side_by_side(d.queries), side_by_side(d.keys), side_by_side(d.values)}, 1);
  }
  return turn_heads_back(d, saved[kQkv], saved[kInverse], heads, turning);
}

TurnedHeads turn_or_keep(const Tensor& qkv, const Heads& heads, const Turning& turning,
                         Values values = Values::kCopied) {
  return turning.is_nothing() ? TurnedHeads{qkv, {}} : turn_heads(qkv, heads, turning, values);
}

// Keys and values as the kernel takes them: on a CPU it wants as many heads as queries have.
// `turned` may lack the values, which are those of qkv.
QueriesKeysValues parts_for(Kernel kernel, const Tensor& turned, const Tensor& qkv, int64_t rows,
                            const Heads& heads) {
  QueriesKeysValues parts = split_heads(qkv, rows, heads);
  const Tensor met =
      turned.view({rows, -1, turned.size(1) / heads.width, heads.width}).transpose(1, 2);
  parts.queries = met.narrow(1, 0, heads.queries);
  parts.keys = met.narrow(1, heads.queries, heads.keys);
  if (kernel == Kernel::kCpu) {
    parts.keys = for_all_queries(parts.keys, heads);
    parts.values = for_all_queries(parts.values, heads);
  }
  return parts;
}

// Autograd would make three gradients by qkv that are zero elsewhere, and add them.
struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t rows,
                        const Heads& heads, const Turning& turning, Kernel kernel) {
    // The norm's way back keeps qkv, and with it the values.
    const TurnedHeads turned =
        turn_or_keep(qkv, heads, turning, turning.norms() ? Values::kLeftOut : Values::kCopied);
    const Mixed mixed =
        mix(kernel, parts_for(kernel, turned.turned, qkv, rows, heads), qkv.requires_grad());
    save(context, qkv, turned, turning, mixed);
    context->saved_data["shape"] =
        std::vector<int64_t>{rows, heads.queries, heads.keys, heads.width};
    return side_by_side(mixed.values);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto shape = context->saved_data["shape"].toIntVector();
    const Heads heads{shape[1], shape[2], shape[3]};
    const Mixed mixed{static_cast<Kernel>(context->saved_data["kernel"].toInt()), saved[kMixed],
                      saved[kLogsumexp], saved[kSeed], saved[kOffset]};
    // cuDNN's plan is for the layout it saw first: always this one.
    const Tensor dmixed =
        dy[0].contiguous().view({shape[0], -1, heads.queries, heads.width}).transpose(1, 2);
    const bool is_turned = saved[kCosines].defined() || saved[kQueryNorm].defined();
    const Tensor dqkv =
        is_turned ? Tensor() : back_side_by_side(dmixed, saved[kQkv], shape[0], heads, mixed);
    if (dqkv.defined()) return {dqkv, {}, {}, {}, {}};
    const auto [dq, dk, dv] =
        back(dmixed, parts_for(mixed.kernel, saved[kTurned], saved[kQkv], shape[0], heads), mixed);
    const bool all = dk.size(1) == heads.queries;
    const HeadGradients d{dq, all ? for_own_keys(dk, heads) : dk,
                          all ? for_own_keys(dv, heads) : dv};
    return {by_qkv(context, saved, d, heads), {}, {}, {}, {}};
  }
};

// Our own kernels on a CPU.
struct TiledAttentionFunction : torch::autograd::Function<TiledAttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, int64_t rows,
                        const Heads& heads, const Turning& turning) {
    const TurnedHeads turned = turn_or_keep(qkv, heads, turning);
    const TiledAttention::Mixed mixed = TiledAttention::forward(turned.turned, rows, heads.queries);
    save(context, qkv, turned, turning, {Kernel::kCpu, mixed.values, mixed.logsumexp, {}});
    return mixed.values;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const Tensor dqkv = TiledAttention::backward(dy[0].contiguous(), saved[kTurned],
                                                 {saved[kMixed], saved[kLogsumexp]});
    if (!saved[kCosines].defined() && !saved[kQueryNorm].defined()) return {dqkv, {}, {}, {}};
    const int64_t rows = saved[kLogsumexp].size(0), queries = saved[kLogsumexp].size(1);
    const Heads heads{queries, queries, dqkv.size(1) / 3 / queries};
    const auto [dq, dk, dv] = split_heads(dqkv, rows, heads);
    return {by_qkv(context, saved, {dq, dk, dv}, heads), {}, {}, {}};
  }
};

// What a token sees: itself and what came before, of its document.  [B, 1, S, S]
Tensor seen_of_documents(const Tensor& documents) {
  const Tensor same = documents.unsqueeze(2) == documents.unsqueeze(1);
  return same.tril_().unsqueeze(1);
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, int64_t rows, const Heads& heads, const Turning& turning,
                        const Tensor& documents) {
  const QueriesKeysValues given = split_heads(qkv, rows, heads);
  if (!documents.defined()) {
    if (heads.queries == heads.keys && TiledAttention::suits(qkv, rows, heads.queries))
      return TiledAttentionFunction::apply(qkv, rows, heads, turning);
    const Kernel kernel = kernel_for(given);
    if (kernel != Kernel::kComposed)
      return FusedAttention::apply(qkv, rows, heads, turning, kernel);
  }
  const auto [queries, keys, values] =
      split_heads(turned_heads(qkv, rows, heads, turning), rows, heads);
  const auto mask =
      documents.defined() ? std::optional(seen_of_documents(documents)) : std::nullopt;
  return side_by_side(at::scaled_dot_product_attention(queries, for_all_queries(keys, heads),
                                                       for_all_queries(values, heads), mask, 0.0,
                                                       /*is_causal=*/!mask));
}

}  // namespace ballast::kernels
