// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/system_words.h"

#include <fmt/format.h>

#include <vector>

namespace ballast::config {
namespace {

bool is_every_other(const Config& config) {
  return config.experts.replaces_feed_forwards() &&
         2 * config.experts.layers == config.model.layers;
}

// "block 12", "blocks 8 and 16"
std::string blocks_in_words(const std::vector<int64_t>& blocks) {
  if (blocks.size() == 1) return fmt::format("block {}", blocks.front());
  return fmt::format("blocks {} and {}", fmt::join(blocks.begin(), blocks.end() - 1, ", "),
                     blocks.back());
}

std::string model_in_words(const Config& config) {
  const ExpertsConfig& experts = config.experts;
  if (experts.layers == 0) return "dense";
  const std::string_view router = experts.traits().title;
  if (is_every_other(config)) return fmt::format("{} in every other feed-forward", router);
  if (experts.replaces_feed_forwards())
    return fmt::format("{} in {} of {} feed-forwards", router, experts.layers, config.model.layers);
  const std::string place =
      experts.placement == Placement::kTop ? "Top" : fmt::format("x{}", experts.layers);
  return fmt::format(
      "{} {}{}", router, place,
      experts.size == ExpertSize::kStandard ? "" : ", " + name_of(experts.size) + " experts");
}

}  // namespace

std::string system_in_words(const Config& config) {
  const int64_t shards = config.training.model_parallel;
  return model_in_words(config) + (shards > 1 ? fmt::format(", model parallel x{}", shards) : "");
}

std::string layer_in_words(const ExpertsConfig& experts) {
  return std::string(experts.traits().layer);
}

std::vector<std::string> layers_in_words(const Config& config) {
  std::vector<std::string> names;
  for (const int64_t place : config.experts.places(config.model.layers))
    names.push_back(fmt::format("{} {}", layer_in_words(config.experts), place));
  return names;
}

std::string places_in_words(const Config& config) {
  const int64_t blocks = config.model.layers;
  if (is_every_other(config))
    return fmt::format("in place of every other of {} feed-forwards", blocks);
  const std::vector<int64_t> places = config.experts.places(blocks);
  if (config.experts.replaces_feed_forwards()) {
    return fmt::format("in place of the feed-forward{} of {} of {}", places.size() > 1 ? "s" : "",
                       blocks_in_words(places), blocks);
  }
  if (places.front() == blocks) return fmt::format("after the last of {} blocks", blocks);
  return fmt::format("after {} of {}", blocks_in_words(places), blocks);
}

}  // namespace ballast::config
