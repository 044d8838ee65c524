// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

struct LossAndGradient {
  // [T], -log p(target) of each token, in fp32 (fp64 for fp64 input); 0 where ignored
  at::Tensor losses;
  at::Tensor gradient;  // [T, D], of scale * sum(losses) by hidden
};

// Next-token loss over the vocabulary. A negative target is ignored: padding, or a token already
// counted. Works in chunks of rows: no more than rows_of_logits() rows of logits exist at a time.
// hidden [T, D], embedding [V, D], targets [T] int64. With a cap c > 0 logits are c tanh(logit /
// c).
at::Tensor next_token_losses(const at::Tensor& hidden, const at::Tensor& embedding,
                             const at::Tensor& targets, double cap = 0);
// The same with the gradient of scale * sum(losses), taken while the logits are there. The
// embedding's gradient is added to embedding.gradient.
LossAndGradient next_token_losses_and_gradient(const at::Tensor& hidden, const Parameter& embedding,
                                               const at::Tensor& targets, double scale,
                                               double cap = 0);

// c tanh(logit / c).
at::Tensor cap_logits(const at::Tensor& logits, double cap);
// Turns a gradient by capped logits into that by the logits before.
void cap_gradient_(at::Tensor& gradient, const at::Tensor& capped, double cap);

// Rows of logits at a time, of `tokens` in all: as many as stay in the second-level caches of a
// CPU; on a GPU few chunks of about equal size, of 2^29 logits (1 GB in bf16) at most.
int64_t rows_of_logits(at::Device device, int64_t tokens, int64_t vocabulary);

// The step inside: logits [C, V] -> losses [C], in fp32 (fp64 for fp64 logits); logits are
// overwritten by the gradient of scale * sum(losses) by them. Registered as
// ballast::softmax_cross_entropy_.
void softmax_cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                            const at::Tensor& losses);

}  // namespace ballast::kernels
