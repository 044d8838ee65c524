// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/kernel_peers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/spread_rows.h"
#include "ballast/kernels/adam.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/embedding.h"
#include "ballast/kernels/layer_norm.h"

namespace ballast::cli {
namespace {

using at::Tensor;

// Tensors of one comparison, drawn where they are used.
struct Maker {
  KernelSizes sizes;
  model::ComputePlace place;

  at::TensorOptions of(at::ScalarType dtype) const { return at::device(place.device).dtype(dtype); }
  Tensor numbers(at::IntArrayRef shape) const { return at::randn(shape, of(place.working)); }
  Tensor rows() const { return numbers({sizes.tokens, sizes.width}); }
  kernels::Parameter parameter(at::IntArrayRef shape) const {
    return {numbers(shape), numbers(shape)};
  }
  // A few words are frequent, most are rare.
  Tensor tokens() const {
    const Tensor even = at::rand({sizes.tokens}, at::device(place.device));
    const Tensor drawn = even.pow_(4).mul_(static_cast<double>(sizes.vocabulary)).to(at::kLong);
    return drawn.clamp_max(sizes.vocabulary - 1);
  }
  double bytes_of(int64_t numbers) const {
    return static_cast<double>(numbers) * static_cast<double>(c10::elementSize(place.working));
  }
  double bytes_of_rows(int64_t passes) const {
    return bytes_of(passes * sizes.tokens * sizes.width);
  }
};

// A copy for autograd to have the gradient of.
Tensor leaf(const Tensor& x) { return x.detach().requires_grad_(); }

void backward(const Tensor& y, const Tensor& dy) { torch::autograd::backward({y}, {dy}); }

// Autograd's gradient of a weight, added to where ours are summed.
void add_gradient(const kernels::Parameter& to, const Tensor& weight) {
  to.gradient.add_(weight.grad());
}

KernelPeers adam_peers(const Maker& make) {
  const int64_t size = make.sizes.vocabulary * make.sizes.width;
  const bool is_one = make.place.working == make.place.master;
  kernels::AdamBuffers b;
  b.working = make.numbers({size});
  b.gradient = make.numbers({size});
  b.master = is_one ? b.working : b.working.to(make.place.master);
  b.first_moment = at::zeros_like(b.master);
  b.second_moment = at::ones_like(b.master);
  const kernels::AdamConstants constants{
      .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .weight_decay = 0.1, .clear = true};
  const double rate = 1e-3;
  const Tensor numbers = kernels::adam_numbers(constants, rate, 10).to(make.place.device);
  const Tensor scale = at::ones({}, b.master.options());
  const double correction1 = 1 - std::pow(0.9, 10), correction2 = 1 - std::pow(0.98, 10);
  const int64_t wide = c10::elementSize(b.master.scalar_type()),
                narrow = c10::elementSize(b.working.scalar_type());
  const int64_t bytes = size * (6 * wide + 2 * narrow + (is_one ? 0 : narrow));
  return {"adam", static_cast<double>(bytes), [] {},
          [=] { kernels::adam_(b, constants, numbers, scale); },
          [=] {
            const at::NoGradGuard no_grad;
            const Tensor g = b.gradient.to(b.master.scalar_type()) * scale;
            b.first_moment.mul_(0.9).add_(g, 0.1);
            b.second_moment.mul_(0.98).addcmul_(g, g, 0.02);
            const Tensor root = b.second_moment.sqrt().mul_(1 / std::sqrt(correction2)).add_(1e-8);
            b.master.mul_(1 - rate * 0.1).addcdiv_(b.first_moment, root, -rate / correction1);
            if (!is_one) b.working.copy_(b.master);
            b.gradient.zero_();
          }};
}

KernelPeers gradient_norm_peers(const Maker& make) {
  const Tensor gradient = make.numbers({make.sizes.vocabulary * make.sizes.width});
  const auto master = make.place.master;
  return {"gradient_norm", make.bytes_of(gradient.numel()), [] {},
          [=] { at::linalg_vector_norm(gradient, 2, std::nullopt, false, master); },
          [=] { gradient.to(master).square().sum().sqrt(); }};
}

KernelPeers cross_entropy_peers(const Maker& make) {
  // As many rows as a chunk of a training step has on a GPU; a CPU's would be over in no time.
  const Tensor logits =
      make.numbers({std::min<int64_t>(make.sizes.tokens, 8192), make.sizes.vocabulary});
  const Tensor work = at::empty_like(logits);
  const auto wide = make.place.working == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor losses = at::empty({logits.size(0)}, make.of(wide));
  const Tensor targets = make.tokens().narrow(0, 0, logits.size(0));
  const double scale = 1e-3;
  return {"cross_entropy", make.bytes_of(2 * logits.numel()), [=] { work.copy_(logits); },
          [=] {
            Tensor rows = work;
            kernels::softmax_cross_entropy_(rows, targets, scale, losses);
          },
          [=] {
            const at::NoGradGuard no_grad;
            const Tensor log_softmax = at::log_softmax(work, 1, wide), at = targets.unsqueeze(1);
            losses.copy_(log_softmax.gather(1, at).squeeze(1)).neg_();
            const Tensor minus_one = at::full({1, 1}, -1, losses.options()).expand_as(at);
            work.copy_(log_softmax.exp().scatter_add_(1, at, minus_one).mul_(scale));
          }};
}

KernelPeers layer_norm_peers(const Maker& make) {
  const Tensor x = make.rows(), dy = make.rows();
  const kernels::Parameter weight = make.parameter({make.sizes.width}),
                           bias = make.parameter({make.sizes.width});
  return {"layer_norm", make.bytes_of_rows(2 + 3), [] {},
          [=] { backward(kernels::layer_norm(leaf(x), weight, bias), dy); },
          [=] {
            const Tensor w = leaf(weight.value), b = leaf(bias.value);
            backward(at::layer_norm(leaf(x), {make.sizes.width}, w, b), dy);
            add_gradient(weight, w);
            add_gradient(bias, b);
          }};
}

KernelPeers embedding_peers(const Maker& make) {
  const int64_t tokens_of_row = std::min<int64_t>(make.sizes.tokens, 1024);
  const int64_t batch = make.sizes.tokens / tokens_of_row, count = batch * tokens_of_row;
  const kernels::Parameter words = make.parameter({make.sizes.vocabulary, make.sizes.width}),
                           places = make.parameter({tokens_of_row, make.sizes.width});
  const Tensor tokens = make.tokens().narrow(0, 0, count);
  const Tensor positions = at::arange(tokens_of_row, make.of(at::kLong));
  const Tensor dy = make.rows().narrow(0, 0, count), root = at::empty({0}).requires_grad_();
  // Rows in and out, and the gradient for each table; that of its rows is read and written.
  const int64_t rows = 4 * count + 2 * (tokens_of_row + std::min(count, make.sizes.vocabulary));
  return {"embedding", make.bytes_of(rows * make.sizes.width), [] {},
          [=] { backward(kernels::embed(tokens, positions, words, places, root), dy); },
          [=] {
            const Tensor w = leaf(words.value), p = leaf(places.value);
            const Tensor of_places = at::embedding(p, positions).repeat({batch, 1});
            backward(at::embedding(w, tokens) + of_places, dy);
            add_gradient(words, w);
            add_gradient(places, p);
          }};
}

KernelPeers expert_gate_peers(const Maker& make) {
  const int64_t experts = make.sizes.experts, each = make.sizes.tokens / experts;
  const auto part = [&] { return make.rows().narrow(0, 0, each * experts); };
  const Tensor h = part(), stack = part(), dy = part();
  const kernels::Parameter weights = make.parameter({experts, make.sizes.width});
  const std::vector<int64_t> rows_of_expert(static_cast<size_t>(experts), each);
  const Tensor expert = at::arange(experts, make.of(at::kLong)).repeat_interleave(each);
  return {
      "expert_gate", make.bytes_of(8 * h.numel()), [] {},
      [=] { backward(experts::gated_residual(leaf(h), leaf(stack), rows_of_expert, weights), dy); },
      [=] {
        const Tensor w = leaf(weights.value), x = leaf(h), y = leaf(stack);
        const Tensor gate = (x * w.index_select(0, expert)).sum(1, true).sigmoid();
        backward(x + gate * (y - x), dy);
        add_gradient(weights, w);
      }};
}

KernelPeers spread_rows_peers(const Maker& make) {
  const int64_t count = make.sizes.tokens;
  const Tensor x = make.rows(), dy = make.rows();
  const Tensor source = at::randperm(count, make.of(at::kLong));
  const Tensor place =
      at::empty_like(source).scatter_(0, source, at::arange(count, source.options()));
  return {"spread_rows", make.bytes_of_rows(4), [] {},
          [=] { backward(experts::spread_rows(leaf(x), source, place.unsqueeze(1)), dy); },
          [=] { backward(leaf(x).index_select(0, source), dy); }};
}

}  // namespace

std::vector<std::function<KernelPeers()>> kernel_peers(const KernelSizes& sizes,
                                                       const model::ComputePlace& place) {
  const Maker make{sizes, place};
  return {[=] { return adam_peers(make); },          [=] { return gradient_norm_peers(make); },
          [=] { return cross_entropy_peers(make); }, [=] { return layer_norm_peers(make); },
          [=] { return embedding_peers(make); },     [=] { return expert_gate_peers(make); },
          [=] { return spread_rows_peers(make); }};
}

}  // namespace ballast::cli
