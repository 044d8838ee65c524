// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/training_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/retention.h"
#include "ballast/checkpoint/step_folders.h"
#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/loading/weights.h"
#include "ballast/loading/whole_tensors.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/system/version.h"

namespace ballast::training {
namespace {

using parameters::Owner;

constexpr const char* kModelFile = "model";

struct ChosenBuffer {
  at::Tensor flat;
  loading::SegmentChoice choice;
};
using Buffers = std::vector<ChosenBuffer>;

loading::SegmentChoice of_owners(loading::SegmentChoice choice, Owner first, Owner last) {
  choice.first = first;
  choice.last = last;
  return choice;
}

Buffers state_of_optimizer(const parameters::ParameterTable& table) {
  return {{table.first_moment(), loading::first_moments()},
          {table.second_moment(), loading::second_moments()},
          {table.first_moment(), loading::momenta()}};
}

checkpoint::Manifest manifest_of(const TrainingParts& parts) {
  const TrainingState& state = parts.state;
  checkpoint::Manifest manifest;
  manifest.step = static_cast<uint64_t>(state.step);
  manifest.data_position = static_cast<uint64_t>(state.step);
  manifest.config = config::to_toml(parts.config);
  manifest.program_version = version();
  manifest.state = nlohmann::json{{"updates", state.updates},
                                  {"tokens", state.tokens},
                                  {"seconds", state.seconds},
                                  {"skipped", state.guard.skipped},
                                  {"skipped_in_row", state.guard.skipped_in_row},
                                  {"recent_norms", state.guard.recent_norms}}
                       .dump();
  manifest.data = parts.data;
  return manifest;
}

// Saves in steps that all workers take together: what one cannot write, none keeps.
class SaveTogether {
 public:
  SaveTogether(const TrainingParts& parts, const comm::WorkerGrid& grid,
               std::filesystem::path folder)
      : parts_(parts), grid_(grid), folder_(std::move(folder)) {}

  // The buffers' tensors, by global names: the shards of replica 0 write a file each of all but the
  // experts', or all workers do where they divide them, and each worker one of its experts'.
  // Collective.
  void write(const std::string& name, const Buffers& of,
             std::vector<checkpoint::TensorView> more = {}) {
    // State that all workers divide is written by all.
    const bool divided = !parts_.table.is_whole(of.front().flat);
    const comm::Communicator& writers = divided ? grid_.everyone() : grid_.shards();
    const bool writes = divided || grid_.replica() == 0;
    std::vector<loading::WholeTensors> whole;
    for (const auto& [flat, choice] : of) {
      if (writes)
        whole.emplace_back(parts_.table, flat, of_owners(choice, Owner::kShard, Owner::kRouter),
                           grid_);
    }
    const auto write_here = [&] {
      if (writes) {
        std::vector<checkpoint::TensorView> views;
        if (writers.rank() == 0) views = std::move(more);
        for (const loading::WholeTensors& some : whole)
          std::ranges::copy(some.views(), std::back_inserter(views));
        write_file(writers.rank() == 0
                       ? name
                       : fmt::format("{}.{}-of-{}", name, writers.rank(), writers.size()),
                   views);
      }
      if (!parts_.model.expert_layers().empty()) write_experts(name, of);
    };
    comm::all_or_none(grid_.everyone(), write_here, {"checkpoint files"});
  }

  std::vector<checkpoint::TensorEntry> entries;

 private:
  void write_experts(const std::string& name, const Buffers& of) {
    std::vector<at::Tensor> hosts(of.size());
    std::vector<checkpoint::TensorView> views;
    for (size_t i = 0; i < of.size(); ++i) {
      const auto choice = of_owners(of[i].choice, Owner::kExpert, Owner::kExpert);
      std::ranges::move(loading::segment_views(parts_.table, of[i].flat, choice, hosts[i]),
                        std::back_inserter(views));
    }
    const std::string kind = name == kModelFile ? "experts" : "experts_" + name;
    const comm::Communicator& workers = grid_.everyone();
    write_file(fmt::format("{}.{}-of-{}", kind, workers.rank(), workers.size()), views);
  }

  void write_file(const std::string& name, const std::vector<checkpoint::TensorView>& views) {
    if (views.empty()) return;  // where all are frozen
    const auto step = static_cast<uint64_t>(parts_.state.step);
    std::ranges::move(
        checkpoint::write_checkpoint_file({folder_, step}, name + ".safetensors", views),
        std::back_inserter(entries));
  }

  const TrainingParts& parts_;
  const comm::WorkerGrid& grid_;
  std::filesystem::path folder_;
};

}  // namespace

std::filesystem::path save_training(const std::filesystem::path& checkpoints,
                                    const TrainingParts& parts, const comm::WorkerGrid& grid) {
  comm::Communicator& workers = grid.everyone();
  const auto step = static_cast<uint64_t>(parts.state.step);
  std::optional<checkpoint::CheckpointWriter> writer;  // on worker 0
  comm::all_or_none(workers,
                    [&] {
                      if (workers.rank() == 0) writer.emplace(checkpoints, step);
                    },
                    {"checkpoint folder"});
  const std::string writing =
      comm::gather_texts(workers, writer ? writer->folder().string() : "", {"checkpoint folder"})
          .front();
  SaveTogether saving(parts, grid, writing);
  const parameters::ParameterTable& table = parts.table;
  saving.write(kModelFile, {{table.master(), loading::all_weights()}},
               loading::price_views(parts.model));
  saving.write("optimizer", state_of_optimizer(table), loading::start_price_views(parts.model));
  if (table.average().defined()) saving.write("average", {{table.average(), loading::average()}});
  const auto all =
      comm::gather_texts(workers, checkpoint::entries_text(saving.entries), {"checkpoint entries"});
  std::filesystem::path folder = checkpoints / checkpoint::step_folder_name(step);
  comm::all_or_none(
      workers,
      [&] {
        if (workers.rank() != 0) return;
        checkpoint::Manifest manifest = manifest_of(parts);
        for (const std::string& text : all)
          std::ranges::move(checkpoint::parse_entries(text), std::back_inserter(manifest.tensors));
        folder = writer->commit(manifest);
        checkpoint::delete_old_checkpoints(
            checkpoints, {static_cast<uint64_t>(parts.config.checkpoint.keep_last),
                          static_cast<uint64_t>(parts.config.checkpoint.keep_every), folder});
      },
      {"checkpoint commit"});
  return folder;
}

void load_training(const checkpoint::Checkpoint& checkpoint, const model::LanguageModel& model,
                   parameters::ParameterTable& table, TrainingState& state) {
  loading::load_segments(checkpoint, table, table.master(), loading::all_weights());
  if (!table.is_whole(table.master()))  // others have the masters of some
    loading::load_segments(checkpoint, table, table.working(), loading::all_weights());
  table.copy_master_to_working();
  loading::load_prices(checkpoint, model);
  for (const auto& [flat, choice] : state_of_optimizer(table))
    loading::load_segments(checkpoint, table, flat, choice);
  if (table.average().defined())
    loading::load_segments(checkpoint, table, table.average(), loading::average());
  state.step = static_cast<int64_t>(checkpoint.manifest().step);
  try {
    const auto json = parse_json(checkpoint.manifest().state);
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

namespace {

// What a model has or has not as a whole, by the tensor's name: "layer.6 gate", "layer.6 expert
// embeddings", "layer.6 sublayer 2", "block.3 feed-forward". Empty: every model has it.
std::string part_of_model(const std::string& tensor) {
  const std::string owner = tensor.substr(0, tensor.find('.', tensor.find('.') + 1));
  if (tensor.starts_with(owner + ".feed_forward.")) return owner + " feed-forward";
  if (!tensor.starts_with("layer.")) return "";
  if (tensor.starts_with(owner + ".gate.")) return owner + " gate";
  if (tensor.starts_with(owner + ".norm.")) return owner + " norm";
  const std::string_view mark = ".sublayer.";
  const size_t sublayer = tensor.find(mark);
  if (sublayer == std::string::npos) return owner + " expert embeddings";
  if (tensor.starts_with(owner + ".shared.")) return owner + " shared expert";
  const size_t number = sublayer + mark.size();
  return owner + " sublayer " + tensor.substr(number, tensor.find('.', number) - number);
}

// Those of `parts` that are not in `others`; of a layer of experts that is missing whole, its name.
std::vector<std::string> without(const std::set<std::string>& parts,
                                 const std::set<std::string>& others) {
  std::set<std::string> result;
  for (const std::string& part : parts) {
    if (others.contains(part)) continue;
    const std::string owner = part.substr(0, part.find(' ') + 1);
    const auto next = others.lower_bound(owner);
    const bool is_whole =
        part.starts_with("layer.") && (next == others.end() || !next->starts_with(owner));
    result.insert(is_whole ? owner.substr(0, owner.size() - 1) : part);
  }
  return {result.begin(), result.end()};
}

}  // namespace

InitializedFrom initialize_from(const checkpoint::Checkpoint& checkpoint,
                                const config::ExpertsConfig& experts,
                                parameters::ParameterTable& table) {
  config::Config other;
  config::read_recorded_config(other, checkpoint.manifest().config, checkpoint.path().string());
  const bool same_experts =
      experts.replaces_feed_forwards() == other.experts.replaces_feed_forwards();
  // A router that read other features, or another place, knows nothing of these.
  const bool same_frame =
      experts.features == other.experts.features && experts.look_ahead == other.experts.look_ahead;
  std::set<std::string> here, there;
  for (const parameters::Segment& segment : table.segments())
    here.insert(part_of_model(segment.name));
  for (const checkpoint::TensorEntry& entry : checkpoint.manifest().tensors) {
    const std::string part = part_of_model(entry.name);
    // What has the same name is another thing: marked, it is in neither's parts.
    const bool is_router = part.ends_with(" gate") || part.ends_with(" expert embeddings");
    const bool is_other =
        part.starts_with("layer.") && (!same_experts || (is_router && !same_frame));
    there.insert(is_other ? "their " + part : part);
  }
  for (const parameters::Segment& segment : table.segments()) {
    if (!there.contains(part_of_model(segment.name))) continue;
    const at::Tensor values = at::empty(segment.shape, table.master().options());
    loading::load_segment(checkpoint, segment.name, values, segment.slice);
    table.put_weights(segment, values);
  }
  table.copy_master_to_working();
  return {.fresh = without(here, there), .left_out = without(there, here)};
}

}  // namespace ballast::training
