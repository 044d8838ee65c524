// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router_frame.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <utility>

#include "ballast/experts/decoder_parts.h"
#include "ballast/experts/gate_logits.h"
#include "ballast/kernels/layer_norm.h"

namespace ballast::experts {

using at::Tensor;

namespace {

// A layer that norms its tokens for all does so for the router that reads these.
bool norms_itself(const config::ExpertsConfig& experts) {
  return experts.features == config::Features::kNormed &&
         (experts.norm == config::ExpertNorm::kOwn || experts.look_ahead);
}

const kernels::Parameter& declare_norm(const config::Config& config, const std::string& name,
                                       parameters::Initialization initialization,
                                       parameters::ParameterTable& table) {
  return table.declare({.name = name,
                        .shape = {config.model.width},
                        .initialization = initialization,
                        .owner = parameters::Owner::kRouter,
                        .rate = config.experts.router_rate});
}

}  // namespace

RouterFrame::RouterFrame(const config::Config& config, const std::string& norm,
                         parameters::SegmentSpec embeddings, parameters::ParameterTable& table)
    : divides_(config.experts.scores == config::Scores::kCosine),
      gate_{config.experts.gate, config.experts.renormalise},
      form_(norm_form_of(config.model)),
      norms_(norms_itself(config.experts)),
      norm_(norms_
                ? declare_norm(config, norm + ".weight", parameters::Initialization::one(), table)
                : kernels::no_parameter()),
      norm_bias_(
          norms_ && form_.takes_mean()
              ? declare_norm(config, norm + ".bias", parameters::Initialization::zero(), table)
              : kernels::no_parameter()),
      embeddings_(table.declare(std::move(embeddings))) {}

Tensor RouterFrame::affinities(const Tensor& tokens) const {
  return gate_logits(norms_ ? kernels::layer_norm(tokens, norm_, norm_bias_, form_) : tokens,
                     embeddings_);
}

Tensor RouterFrame::scores(const Tensor& affinities) const {
  const at::NoGradGuard no_grad;
  if (!divides_) return affinities.detach();
  // An embedding of zeros has no direction, and scores of zero.
  constexpr double kLeast = 1e-20;
  return affinities / lengths(affinities.scalar_type()).clamp_min_(kLeast);
}

Tensor RouterFrame::lengths(at::ScalarType type) const {
  if (!divides_) return {};
  const at::NoGradGuard no_grad;
  return at::linalg_vector_norm(embeddings_.value, 2, at::IntArrayRef{1}, /*keepdim=*/false, type);
}

Tensor RouterFrame::weights(const Tensor& affinities, const Tensor& expert,
                            const Tensor& balance) const {
  return chosen_weights(affinities, expert, gate_, balance);
}

}  // namespace ballast::experts
