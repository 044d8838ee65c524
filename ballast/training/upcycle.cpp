// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/upcycle.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ballast/kernels/parallel_ranges.h"
#include "ballast/loading/weights.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"

namespace ballast::training {
namespace {

using at::Tensor;

void check_copies(const checkpoint::Checkpoint& checkpoint, const config::Config& config) {
  const config::ExpertsConfig& e = config.experts;
  if (!e.replaces_feed_forwards() || e.sublayers_of_layer() != 1) {
    fail(
        "--upcycle copy: feed-forwards are copied to experts that stand for them: give "
        "experts.layers, experts.placement replace and one sublayer");
  }
  if (e.width_of_expert(config.model) != config.model.feed_forward_width()) {
    fail(
        "--upcycle copy: experts.hidden is {}, but a feed-forward of {} has {}; copies have the "
        "same width",
        e.width_of_expert(config.model), checkpoint.path().string(),
        config.model.feed_forward_width());
  }
  for (const int64_t place : e.places(config.model.layers)) {
    const std::string name = fmt::format("block.{}.feed_forward.up.weight", place - 1);
    if (!checkpoint.has(name))
      fail("--upcycle copy: {} has no {} to copy", checkpoint.path().string(), name);
  }
}

// The tensor of the dense model that this one of a layer of experts is a copy of; empty: of none.
// layer.6.expert.17.sublayer.0.up.weight, layer.6.norm.weight -> block.5.feed_forward.up.weight
std::string copied_from(const std::string& name) {
  constexpr std::string_view kLayer = "layer.", kSublayer = ".sublayer.0.";
  if (!name.starts_with(kLayer)) return "";
  const size_t end = name.find('.', kLayer.size());
  const int64_t place = std::stoll(name.substr(kLayer.size(), end - kLayer.size()));
  const std::string rest = name.substr(end);
  const size_t sublayer = rest.find(kSublayer);
  const bool is_expert = rest.starts_with(".expert.") && sublayer != std::string::npos;
  if (!is_expert && !rest.starts_with(".norm.")) return "";
  return fmt::format("block.{}.feed_forward.{}", place - 1,
                     is_expert ? rest.substr(sublayer + kSublayer.size()) : rest.substr(1));
}

// Standard normal numbers: a function of (key, index) alone.
Tensor noise_like(const Tensor& values, uint64_t key) {
  const Tensor noise = at::empty(values.sizes(), at::kFloat);
  auto* const out = noise.mutable_data_ptr<float>();
  kernels::parallel_ranges(noise.numel(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<float>(RandomStream(key, "upcycle", static_cast<uint64_t>(i)).normal());
    }
  });
  return noise.to(values.options());
}

}  // namespace

double scale_of_copies(const config::ExpertsConfig& experts) {
  const auto of_token = static_cast<double>(experts.experts_of_token());
  // A fresh router is undecided: its sigmoids are a half, its probabilities alike.
  if (experts.gate == config::Gate::kSigmoid) return 2 / of_token;
  if (of_token > 1 && experts.renormalise) return 1;
  return static_cast<double>(experts.count) / of_token;
}

void copy_feed_forwards(const checkpoint::Checkpoint& checkpoint, const config::Config& config,
                        const Upcycling& upcycling, parameters::ParameterTable& table) {
  const at::NoGradGuard no_grad;
  check_copies(checkpoint, config);
  const double scale = scale_of_copies(config.experts);
  for (const parameters::Segment& segment : table.segments()) {
    const std::string source = copied_from(segment.name);
    if (source.empty()) continue;
    const Tensor target = at::empty(segment.shape, table.master().options());
    loading::load_segment(checkpoint, source, target);
    if (source.find(".down.") != std::string::npos) target.mul_(scale);
    if (target.dim() >= 2 && upcycling.noise > 0) {
      const double deviation = upcycling.noise * target.std().item<double>();
      target.add_(noise_like(target, random_bits(upcycling.seed, segment.name)), deviation);
    }
    table.put_weights(segment, target);
  }
  table.copy_master_to_working();
}

}  // namespace ballast::training
