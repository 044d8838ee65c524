// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/training_state.h"

#include <nlohmann/json.hpp>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/retention.h"
#include "ballast/inference/weights.h"
#include "ballast/system/error.h"
#include "ballast/system/version.h"

namespace ballast {
namespace {

constexpr const char* kFirstMoment = "adam.first";
constexpr const char* kSecondMoment = "adam.second";

}  // namespace

std::filesystem::path save_training(const std::filesystem::path& checkpoints, const Config& config,
                                    const ParameterTable& table, const TrainingState& state) {
  CheckpointWriter writer(checkpoints, static_cast<uint64_t>(state.step));
  Manifest manifest;
  manifest.step = static_cast<uint64_t>(state.step);
  manifest.data_position = static_cast<uint64_t>(state.step);
  manifest.config = to_toml(config);
  manifest.program_version = version();
  manifest.state = nlohmann::json{{"updates", state.updates},
                                  {"tokens", state.tokens},
                                  {"seconds", state.seconds},
                                  {"skipped", state.guard.skipped},
                                  {"skipped_in_row", state.guard.skipped_in_row},
                                  {"recent_norms", state.guard.recent_norms}}
                       .dump();
  const auto write = [&](const std::string& file,
                         std::initializer_list<std::pair<at::Tensor, const char*>> buffers) {
    std::vector<at::Tensor> hosts(buffers.size());
    std::vector<TensorView> views;
    size_t i = 0;
    for (const auto& [flat, prefix] : buffers)
      std::ranges::move(segment_views(table, flat, prefix, hosts[i++]), std::back_inserter(views));
    std::ranges::move(writer.write_file(file, views), std::back_inserter(manifest.tensors));
  };
  write("model.safetensors", {{table.master(), ""}});
  write("optimizer.safetensors",
        {{table.first_moment(), kFirstMoment}, {table.second_moment(), kSecondMoment}});
  const auto folder = writer.commit(manifest);
  delete_old_checkpoints(checkpoints, {static_cast<uint64_t>(config.checkpoint.keep_last),
                                       static_cast<uint64_t>(config.checkpoint.keep_every)});
  return folder;
}

void load_training(const Checkpoint& checkpoint, ParameterTable& table, TrainingState& state) {
  load_segments(checkpoint, table, table.master(), "");
  table.copy_master_to_working();
  load_segments(checkpoint, table, table.first_moment(), kFirstMoment);
  load_segments(checkpoint, table, table.second_moment(), kSecondMoment);
  state.step = static_cast<int64_t>(checkpoint.manifest().step);
  try {
    const auto json = nlohmann::json::parse(checkpoint.manifest().state);
    json.at("updates").get_to(state.updates);
    json.at("tokens").get_to(state.tokens);
    json.at("seconds").get_to(state.seconds);
    json.at("skipped").get_to(state.guard.skipped);
    json.at("skipped_in_row").get_to(state.guard.skipped_in_row);
    json.at("recent_norms").get_to(state.guard.recent_norms);
  } catch (const nlohmann::json::exception& error) {
    fail("{}: its manifest holds no training state we can read ({})", checkpoint.path().string(),
         error.what());
  }
}

}  // namespace ballast
