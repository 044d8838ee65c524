// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/loaded_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/step_folders.h"
#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/loading/model_of_checkpoint.h"
#include "ballast/loading/weights.h"
#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/version.h"
#include "ballast/tokens/token_source.h"

namespace ballast::loading {

std::filesystem::path tokenizer_folder_of(const std::filesystem::path& path) {
  // runs/x, runs/x/checkpoints, runs/x/checkpoints/step_N, exported/ and exported/model.safetensors
  fs::path place = fs::absolute(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // a slash at the end
  if (fs::is_regular_file(place)) place = place.parent_path();
  if (place.filename().string().starts_with("step_")) place = place.parent_path();
  if (place.filename() == "checkpoints") place = place.parent_path();
  if (fs::exists(place / "tokenizer" / "tokenizer.json")) return place / "tokenizer";
  return is_export(place) && fs::exists(place / "tokenizer.json") ? place : fs::path();
}

bool is_export(const fs::path& folder) {
  return fs::exists(folder / kExportedWeights) && !fs::exists(folder / checkpoint::kManifestName) &&
         !fs::exists(folder / "checkpoints");
}

namespace {

// The run's own tokenizer must be the one it was trained with; another is the user's to choose.
void compare_tokenizer(const LoadedModel& loaded, const std::string& origin,
                       const LoadRequest& request) {
  const auto trained_with =
      std::ranges::find(loaded.data, "tokenizer", &checkpoint::DataEntry::role);
  if (trained_with == loaded.data.end()) return;
  const std::string found = tokens::fingerprint_text(*loaded.tokenizer);
  if (found == trained_with->fingerprint) return;
  const std::string difference =
      fmt::format("the tokenizer {} ({}) is not the one that {} was trained with ({})", origin,
                  found, loaded.path.string(), trained_with->fingerprint);
  if (request.tokenizer.empty())
    fail("{}: put that back, or name one with --tokenizer", difference);
  log_warning("{}", difference);
}

void check_tokenizer(const LoadedModel& loaded, const std::string& origin,
                     const LoadRequest& request) {
  if (loaded.tokenizer == nullptr) return;
  compare_tokenizer(loaded, origin, request);
  if (loaded.tokenizer->vocabulary_size() > static_cast<uint64_t>(loaded.config.model.vocabulary)) {
    fail(
        "the tokenizer {} has {} tokens, the model {} knows {}: it is not the one the model was "
        "trained with",
        origin, loaded.tokenizer->vocabulary_size(), loaded.path.string(),
        loaded.config.model.vocabulary);
  }
}

// Worker 0 opens what the path stands for, and tells the others which checkpoint that is.
checkpoint::Checkpoint open_once(const fs::path& path, comm::Communicator& workers,
                                 std::string& found) {
  std::optional<checkpoint::Checkpoint> checkpoint;
  comm::all_or_none(workers,
                    [&] {
                      if (workers.rank() == 0)
                        checkpoint.emplace(checkpoint::open_checkpoint(
                            is_export(path) ? path / kExportedWeights : path));
                    },
                    {"checkpoint"});
  found = comm::gather_texts(workers, checkpoint ? checkpoint->path().string() : "", {"checkpoint"})
              .front();
  comm::all_or_none(workers,
                    [&] {
                      if (workers.rank() != 0) checkpoint.emplace(found);
                    },
                    {"checkpoint"});
  return std::move(*checkpoint);
}

}  // namespace

checkpoint::Checkpoint open_together(const fs::path& path, comm::Communicator& workers) {
  constexpr int kAttempts = 20;
  std::string found;
  std::optional<checkpoint::Checkpoint> checkpoint;
  for (int attempt = 1; !checkpoint; ++attempt) {
    found.clear();
    try {
      checkpoint.emplace(open_once(path, workers, found));
    } catch (const comm::SharedError&) {
      // Worker 0 had found it: a training that goes on has deleted it before the others came.
      const bool is_gone = !found.empty() && !fs::exists(found);
      const std::string gone =
          comm::gather_texts(workers, is_gone ? "gone" : "", {"checkpoint that is gone"}).front();
      if (gone.empty() || attempt == kAttempts) throw;
    }
  }
  const checkpoint::Manifest& manifest = checkpoint->manifest();
  const comm::Fact facts[] = {
      {"the program's version", version()},
      {found, fmt::format("step {}, checksum {}", manifest.step,
                          checksum_hex(checksum(manifest.config +
                                                checkpoint::entries_text(manifest.tensors))))}};
  comm::check_agreement(workers, facts, {"model"});
  return std::move(*checkpoint);
}

namespace {

void check_average(const checkpoint::Checkpoint& checkpoint) {
  const std::string prefix = tensor_name(average().prefix, "");
  const auto is_part = [&](const checkpoint::TensorEntry& entry) {
    return entry.name.starts_with(prefix);
  };
  if (std::ranges::any_of(checkpoint.manifest().tensors, is_part)) return;
  fail(
      "{} holds no average of the weights: a run keeps one with optimizer.average, as 0.999; leave "
      "--average out",
      checkpoint.path().string());
}

// The newest one that can be opened. Its bytes are not verified.
checkpoint::Checkpoint open_newest(const fs::path& path) {
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  auto steps = checkpoint::list_step_folders(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return checkpoint::Checkpoint(step->path);
    } catch (const UserError&) {  // an older one will do
    }
  }
  return checkpoint::open_checkpoint(path);  // says why there is none
}

}  // namespace

config::Config recorded_config(const fs::path& path) {
  const bool is_one = fs::is_regular_file(path) || fs::exists(path / checkpoint::kManifestName);
  const checkpoint::Checkpoint checkpoint = is_export(path)
                                                ? checkpoint::Checkpoint(path / kExportedWeights)
                                            : is_one ? checkpoint::Checkpoint(path)
                                                     : open_newest(path);
  config::Config config;
  config::read_recorded_config(config, checkpoint.manifest().config,
                               checkpoint.path().string() + ", its config");
  return config;
}

namespace {

void check_experts(const config::ExpertsConfig& experts, const fs::path& path, int workers) {
  if (experts.layers > 0 && experts.count % workers != 0) {
    fail(
        "{} has {} experts in a layer, which cannot be divided among {} workers; start a number of "
        "workers that divides it",
        path.string(), experts.count, workers);
  }
}

}  // namespace

std::unique_ptr<LoadedModel> load_model(const LoadRequest& request, comm::World& world) {
  comm::Communicator& workers = world.everyone();
  const checkpoint::Checkpoint checkpoint = open_together(request.path, workers);
  auto loaded = std::make_unique<LoadedModel>();
  loaded->path = checkpoint.path();
  loaded->step = checkpoint.manifest().step;
  loaded->data = checkpoint.manifest().data;
  const auto prepare = [&] {
    config::Config& config = loaded->config;
    config::read_recorded_config(config, checkpoint.manifest().config,
                                 checkpoint.path().string() + ", its config");
    check_model_of(checkpoint, config);
    if (request.weights == Weights::kAverage) check_average(checkpoint);
    check_experts(config.experts, checkpoint.path(), workers.size());
    config.training.model_parallel = request.model_parallel;
    config::check_model_parallel(config, workers.size());
    loaded->place = model::choose_place({.device = request.device,
                                         .precision = request.precision,
                                         .threads = config.training.threads,
                                         .on_machine = world.place()});
    const std::string tokenizer =
        request.tokenizer.empty() ? tokenizer_folder_of(request.path).string() : request.tokenizer;
    if (!tokenizer.empty()) loaded->tokenizer = tokenizer::load_tokenizer(tokenizer);
    check_tokenizer(*loaded, tokenizer, request);
  };
  comm::all_or_none(workers, prepare, {"load model"});
  world.compute_on(loaded->place.device);
  const comm::WorkerGrid grid(workers, request.model_parallel);  // with the engine chosen just now
  const auto load = [&] {
    loaded->model = std::make_unique<model::LanguageModel>(loaded->config, loaded->table, grid);
    loaded->table.freeze(loaded->config.training.freeze);  // what is frozen has no average
    loaded->table.allocate({.device = loaded->place.device,
                            .working = loaded->place.working,
                            .master = loaded->place.working,
                            .trainable = false});
    if (request.weights == Weights::kAverage) {
      load_segments(checkpoint, loaded->table, loaded->table.working(), average());
      load_segments(checkpoint, loaded->table, loaded->table.working(), frozen_weights());
    } else {
      load_segments(checkpoint, loaded->table, loaded->table.working(), all_weights());
    }
    load_prices(checkpoint, *loaded->model);
  };
  comm::all_or_none(workers, load, {"load weights"});
  return loaded;
}

}  // namespace ballast::loading
