// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router_frame.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

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

const kernels::Parameter& declare(const RouterPlace& place, const std::string& name,
                                  std::vector<int64_t> shape,
                                  parameters::Initialization initialization) {
  return place.table.declare({.name = fmt::format("layer.{}.{}", place.layer, name),
                              .shape = std::move(shape),
                              .initialization = initialization,
                              .owner = parameters::Owner::kRouter,
                              .rate = place.config.experts.router_rate});
}

}  // namespace

RouterFrame::RouterFrame(const RouterPlace& place, const std::string& norm,
                         const std::string& embeddings, parameters::Initialization initialization)
    : divides_(place.config.experts.scores == config::Scores::kCosine),
      gate_{place.config.experts.gate, place.config.experts.renormalise},
      form_(norm_form_of(place.config.model)),
      norms_(norms_itself(place.config.experts)),
      norm_(norms_ ? declare(place, norm + ".weight", {place.config.model.width},
                             parameters::Initialization::one())
                   : kernels::no_parameter()),
      norm_bias_(norms_ && form_.takes_mean()
                     ? declare(place, norm + ".bias", {place.config.model.width},
                               parameters::Initialization::zero())
                     : kernels::no_parameter()),
      embeddings_(declare(place, embeddings, {place.config.experts.count, place.config.model.width},
                          initialization)) {}

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
