// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/vocabulary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "ballast/comm/collectives.h"
#include "ballast/kernels/embedding.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/widened.h"
#include "ballast/model/initialization.h"
#include "ballast/model/shard_layers.h"

namespace ballast::model {

using at::Tensor;

namespace {

// Logits of half precision live beside their widened copy, which has twice as many bytes.
int64_t rows_at_a_time(const Tensor& hidden, int64_t vocabulary) {
  const bool half = hidden.scalar_type() == at::kHalf || hidden.scalar_type() == at::kBFloat16;
  return kernels::rows_of_logits(hidden.device(), hidden.size(0),
                                 half ? 3 * vocabulary : vocabulary);
}

}  // namespace

// What all shards know together of some rows.
struct Vocabulary::Whole {
  Tensor losses;  // [C]
  Tensor share;   // [C]: softmax is this times what part_of_losses() left in the logits
};

Vocabulary::Vocabulary(const config::ModelConfig& config, parameters::ParameterTable& table,
                       comm::Communicator& shards)
    : size_(config.vocabulary),
      rows_((size_ + shards.size() - 1) / shards.size()),
      first_(rows_ * shards.rank()),
      shards_(shards),
      cap_(config.logit_cap),
      embedding_(table.declare(parameters::divided(
          config.tied ? multiplied(matrix("token_embedding", size_, config.width))
                      : matrix("token_embedding", size_, config.width),
          division(shards, 0)))),
      output_(config.tied ? embedding_
                          : table.declare(parameters::divided(
                                multiplied(matrix("output.weight", size_, config.width)),
                                division(shards, 0)))) {}

Tensor Vocabulary::embed(const Tensor& tokens, const Tensor& graph_root) const {
  const Tensor part = kernels::look_up(tokens, first_, embedding_, graph_root);
  return shards_.size() == 1 ? part : comm::sum_over_shards(shards_, part, {"token embedding"});
}

Tensor Vocabulary::embed(const Tensor& tokens, const Tensor& positions,
                         const kernels::Parameter& position_embedding,
                         const Tensor& graph_root) const {
  if (shards_.size() == 1)
    return kernels::embed(tokens, positions, embedding_, position_embedding, graph_root);
  const int64_t times = tokens.size(0) / std::max<int64_t>(1, positions.size(0));
  const Tensor part = kernels::look_up(tokens, first_, embedding_, graph_root);
  return comm::sum_over_shards(shards_, part, {"token embedding"}) +
         kernels::look_up(positions.repeat({times}), 0, position_embedding, graph_root);
}

Tensor Vocabulary::part_of_logits(const Tensor& hidden) const {
  const Tensor logits = kernels::multiply_transposed(hidden, output_.value, {});
  return cap_ > 0 ? kernels::cap_logits(logits, cap_) : logits;
}

Tensor Vocabulary::logits(const Tensor& hidden) const {
  const Tensor part = part_of_logits(hidden);  // [T, V / M]
  if (shards_.size() == 1) return part;
  comm::RowsOfWorker rows;
  for (int64_t first = 0; first < size_; first += rows_)
    rows.push_back(std::min(rows_, size_ - first));
  return comm::gather_rows(shards_, part.t().contiguous(), rows, {"logits"}).t().contiguous();
}

void Vocabulary::check(const Tensor& hidden, const Tensor& targets) const {
  TORCH_CHECK(hidden.dim() == 2 && targets.dim() == 1 && targets.size(0) == hidden.size(0) &&
                  targets.scalar_type() == at::kLong,
              "losses: want hidden [T, D] and int64 targets [T], got ", hidden.sizes(), ", ",
              targets.sizes());
  // On a GPU a look would wait for the device; tokens are checked when batches are read.
  TORCH_CHECK(!targets.is_cpu() || targets.numel() == 0 || targets.max().item<int64_t>() < size_,
              "losses: a target does not fit ", size_, " tokens");
}

// The largest logit here, the sum of exp(logit - largest), and the target's logit, 0 where it is
// another shard's. Logits become exp(logit - largest).
Tensor Vocabulary::part_of_losses(Tensor& logits, const Tensor& targets) const {
  const Tensor here = targets - first_;
  const Tensor elsewhere = here.lt(0).logical_or_(here.ge(logits.size(1)));
  const Tensor at_target =
      logits.gather(1, here.clamp(0, logits.size(1) - 1).unsqueeze(1)).squeeze(1);
  const Tensor largest = logits.amax(1);
  logits.sub_(largest.unsqueeze(1)).exp_();
  return at::stack({largest, logits.sum(1), at_target.masked_fill(elsewhere, 0)});
}

Vocabulary::Whole Vocabulary::combine(const Tensor& own, const Tensor& targets) const {
  const Tensor parts = at::empty({shards_.size(), 3, own.size(1)}, own.options());
  shards_.all_gather(parts, own, {"loss"});
  const Tensor largest = parts.select(1, 0).amax(0);
  const Tensor sum = (parts.select(1, 1) * (parts.select(1, 0) - largest).exp()).sum(0);
  const Tensor at_target = parts.select(1, 2).sum(0);
  const Tensor ignored = targets.lt(0);
  // The difference first: both may be huge.
  return {(sum.log() + (largest - at_target)).masked_fill_(ignored, 0),
          ((own.select(0, 0) - largest).exp_() / sum).masked_fill_(ignored, 0)};
}

Tensor Vocabulary::losses(const Tensor& hidden, const Tensor& targets) const {
  if (shards_.size() == 1) return kernels::next_token_losses(hidden, output_.value, targets, cap_);
  const at::NoGradGuard no_grad;
  check(hidden, targets);
  const int64_t chunk = rows_at_a_time(hidden, rows_);
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < hidden.size(0); first += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - first);
    Tensor logits = kernels::widened(part_of_logits(hidden.narrow(0, first, count)));
    parts.push_back(part_of_losses(logits, targets.narrow(0, first, count)));
  }
  return combine(at::cat(parts, 1), targets).losses;
}

kernels::LossAndGradient Vocabulary::losses_and_gradient(const Tensor& hidden_on_graph,
                                                         const Tensor& targets,
                                                         double scale) const {
  if (shards_.size() == 1)
    return kernels::next_token_losses_and_gradient(hidden_on_graph, output_, targets, scale, cap_);
  const at::NoGradGuard no_grad;
  const Tensor hidden = hidden_on_graph.detach();
  check(hidden, targets);
  const int64_t chunk = rows_at_a_time(hidden, rows_);
  Tensor gradient = at::empty_like(hidden);
  std::vector<Tensor> losses;
  for (int64_t first = 0; first < hidden.size(0); first += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - first);
    const Tensor rows = hidden.narrow(0, first, count), wanted = targets.narrow(0, first, count);
    Tensor logits = kernels::widened(part_of_logits(rows));  // [C, V / M]
    const Tensor capped = cap_ > 0 ? logits.clone() : Tensor();
    const Whole whole = combine(part_of_losses(logits, wanted), wanted);
    losses.push_back(whole.losses);
    // Zeros where nothing is wanted, also for logits that are not finite.
    logits.mul_((whole.share * scale).unsqueeze(1)).masked_fill_(wanted.lt(0).unsqueeze(1), 0);
    const Tensor here = wanted - first_;
    const Tensor is_here = here.ge(0).logical_and_(here.lt(logits.size(1)));
    logits.scatter_add_(1, here.clamp(0, logits.size(1) - 1).unsqueeze(1),
                        (is_here.to(logits.scalar_type()) * -scale).unsqueeze(1));
    if (cap_ > 0) kernels::cap_gradient_(logits, capped, cap_);
    logits = logits.to(hidden.scalar_type());
    gradient.narrow(0, first, count).copy_(kernels::multiply_weight(logits, output_.value));
    if (output_.gradient.defined())
      kernels::sum_outer_products({output_.gradient, output_.is_unwritten}, logits, rows);
  }
  shards_.all_reduce(gradient, comm::Reduction::kSum, {"gradient of the loss"});
  return {at::cat(losses), gradient};
}

}  // namespace ballast::model
