// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/rope.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ballast::model {

using config::RopeScaling;

namespace {

double context_before(const config::ModelConfig& config) {
  return config.rope_context > 0 ? static_cast<double>(config.rope_context)
                                 : static_cast<double>(config.context) / config.rope_factor;
}

// Llama 3: slow pairs are stretched, fast ones kept, and those between mixed by their turns within
// the old context.
float stretched_as_llama3(float angle, const config::ModelConfig& config) {
  const double turns = context_before(config) * angle / (2 * std::numbers::pi);
  const double kept =
      std::clamp((turns - config.rope_low) / (config.rope_high - config.rope_low), 0.0, 1.0);
  return static_cast<float>((1 - kept) * angle / config.rope_factor + kept * angle);
}

// YaRN: the same, but mixed by the pair's number. Gives the pair that turns so often.
double pair_of_turns(double turns, const config::ModelConfig& config) {
  const auto width = static_cast<double>(config.width_of_head());
  return width * std::log(context_before(config) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

float stretched_as_yarn(float angle, int64_t pair, const config::ModelConfig& config) {
  const auto last = static_cast<double>(config.width_of_head() - 1);
  const double first_mixed = std::max(std::floor(pair_of_turns(config.rope_high, config)), 0.0);
  const double first_stretched = std::min(std::ceil(pair_of_turns(config.rope_low, config)), last);
  const double span = std::max(first_stretched - first_mixed, 0.001);  // two may be one
  const double stretched = std::clamp((static_cast<double>(pair) - first_mixed) / span, 0.0, 1.0);
  return static_cast<float>(angle / config.rope_factor * stretched + angle * (1 - stretched));
}

}  // namespace

RopeAngles rope_angles(const config::ModelConfig& config) {
  RopeAngles angles;
  const int64_t width = config.width_of_head();
  for (int64_t pair = 0; pair < width / 2; ++pair) {
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(width);
    float angle = 1 / std::pow(static_cast<float>(config.rope_theta), exponent);
    if (config.rope_scaling == RopeScaling::kLinear)
      angle /= static_cast<float>(config.rope_factor);
    if (config.rope_scaling == RopeScaling::kLlama3) angle = stretched_as_llama3(angle, config);
    if (config.rope_scaling == RopeScaling::kYarn) angle = stretched_as_yarn(angle, pair, config);
    angles.per_position.push_back(angle);
  }
  if (config.rope_scaling == RopeScaling::kYarn) {
    angles.magnitude =
        config.rope_magnitude > 0 ? config.rope_magnitude : 0.1 * std::log(config.rope_factor) + 1;
  }
  return angles;
}

RopeTables rope_tables(const config::ModelConfig& config, const at::TensorOptions& options) {
  const RopeAngles angles = rope_angles(config);
  const auto pairs = static_cast<int64_t>(angles.per_position.size());
  const at::Tensor cosines = at::empty({config.context, pairs}, at::kDouble);
  const at::Tensor sines = at::empty({config.context, pairs}, at::kDouble);
  auto* c = cosines.mutable_data_ptr<double>();
  auto* s = sines.mutable_data_ptr<double>();
  for (int64_t position = 0; position < config.context; ++position) {
    for (const float angle : angles.per_position) {
      const float turned = static_cast<float>(position) * angle;
      *c++ = std::cos(static_cast<double>(turned)) * angles.magnitude;
      *s++ = std::sin(static_cast<double>(turned)) * angles.magnitude;
    }
  }
  return {cosines.to(options), sines.to(options)};
}

}  // namespace ballast::model
