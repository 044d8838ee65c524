// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/training_state.h"

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
#include "ballast/inference/weights.h"
#include "ballast/system/error.h"
#include "ballast/system/version.h"

namespace ballast {
namespace {

constexpr const char* kFirstMoment = "adam.first";
constexpr const char* kSecondMoment = "adam.second";

Manifest manifest_of(const TrainingParts& parts) {
  const TrainingState& state = parts.state;
  Manifest manifest;
  manifest.step = static_cast<uint64_t>(state.step);
  manifest.data_position = static_cast<uint64_t>(state.step);
  manifest.config = to_toml(parts.config);
  manifest.program_version = version();
  manifest.state = nlohmann::json{{"updates", state.updates},
                                  {"tokens", state.tokens},
                                  {"seconds", state.seconds},
                                  {"skipped", state.guard.skipped},
                                  {"skipped_in_row", state.guard.skipped_in_row},
                                  {"recent_norms", state.guard.recent_norms}}
                       .dump();
  return manifest;
}

// One flat buffer of the table, by the name its tensors get.
struct Buffer {
  at::Tensor flat;
  const char* prefix;
};

// A worker's part of a checkpoint: the files it writes into the folder.
class PartWriter {
 public:
  PartWriter(const TrainingParts& parts, std::filesystem::path folder)
      : parts_(parts), folder_(std::move(folder)) {}

  void write(const std::string& file, std::initializer_list<Buffer> buffers, Owner owner,
             std::vector<TensorView> more = {}) {
    std::vector<at::Tensor> hosts(buffers.size());
    std::vector<TensorView> views = std::move(more);
    size_t i = 0;
    for (const auto& [flat, prefix] : buffers)
      std::ranges::move(segment_views(parts_.table, flat, {prefix, owner}, hosts[i++]),
                        std::back_inserter(views));
    const auto step = static_cast<uint64_t>(parts_.state.step);
    std::ranges::move(write_checkpoint_file({folder_, step}, file, views),
                      std::back_inserter(entries));
  }

  std::vector<TensorEntry> entries;

 private:
  const TrainingParts& parts_;
  std::filesystem::path folder_;
};

// Experts' files are numbered by the worker that wrote them; what is in them goes by global names.
std::vector<TensorEntry> write_part(const TrainingParts& parts, const std::filesystem::path& folder,
                                    const Communicator& workers) {
  PartWriter writer(parts, folder);
  const ParameterTable& table = parts.table;
  const std::initializer_list<Buffer> moments = {{table.first_moment(), kFirstMoment},
                                                 {table.second_moment(), kSecondMoment}};
  if (workers.rank() == 0) {
    writer.write("model.safetensors", {{table.master(), ""}}, Owner::kShared,
                 price_views(parts.model));
    writer.write("optimizer.safetensors", moments, Owner::kShared);
  }
  if (!parts.model.expert_layers().empty()) {
    const std::string part = fmt::format("{}-of-{}", workers.rank(), workers.size());
    writer.write("experts." + part + ".safetensors", {{table.master(), ""}}, Owner::kExpert);
    writer.write("experts_optimizer." + part + ".safetensors", moments, Owner::kExpert);
  }
  return std::move(writer.entries);
}

}  // namespace

std::filesystem::path save_training(const std::filesystem::path& checkpoints,
                                    const TrainingParts& parts, Communicator& workers) {
  const auto step = static_cast<uint64_t>(parts.state.step);
  std::optional<CheckpointWriter> writer;  // on worker 0
  all_or_none(workers,
              [&] {
                if (workers.rank() == 0) writer.emplace(checkpoints, step);
              },
              {"checkpoint folder"});
  const std::string writing =
      gather_texts(workers, writer ? writer->folder().string() : "", {"checkpoint folder"}).front();
  std::vector<TensorEntry> own;
  all_or_none(workers, [&] { own = write_part(parts, writing, workers); }, {"checkpoint files"});
  const auto all = gather_texts(workers, entries_text(own), {"checkpoint entries"});
  std::filesystem::path folder = checkpoints / step_folder_name(step);
  all_or_none(workers,
              [&] {
                if (workers.rank() != 0) return;
                Manifest manifest = manifest_of(parts);
                for (const std::string& text : all)
                  std::ranges::move(parse_entries(text), std::back_inserter(manifest.tensors));
                folder = writer->commit(manifest);
                delete_old_checkpoints(
                    checkpoints,
                    {static_cast<uint64_t>(parts.config.checkpoint.keep_last),
                     static_cast<uint64_t>(parts.config.checkpoint.keep_every), folder});
              },
              {"checkpoint commit"});
  return folder;
}

void load_training(const Checkpoint& checkpoint, const LanguageModel& model, ParameterTable& table,
                   TrainingState& state) {
  load_segments(checkpoint, table, table.master(), "");
  table.copy_master_to_working();
  load_prices(checkpoint, model);
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

namespace {

// The part of a BASE layer that a tensor belongs to, which a model has or has not as a whole:
// "layer.6", or "layer.6 sublayer 2". Empty: it is not of a BASE layer.
std::string part_of_base_layer(const std::string& tensor) {
  if (!tensor.starts_with("layer.")) return "";
  const std::string layer = tensor.substr(0, tensor.find('.', 6));
  const std::string_view mark = ".sublayer.";
  const size_t sublayer = tensor.find(mark);
  if (sublayer == std::string::npos) return layer;
  const size_t number = sublayer + mark.size();
  return layer + " sublayer " + tensor.substr(number, tensor.find('.', number) - number);
}

// Those of `parts` that are not in `others`; of a layer that is missing whole, its name alone.
std::vector<std::string> without(const std::set<std::string>& parts,
                                 const std::set<std::string>& others) {
  std::vector<std::string> result;
  for (const std::string& part : parts) {
    const std::string layer = part.substr(0, part.find(' '));
    if (!others.contains(part) && (part == layer || others.contains(layer))) result.push_back(part);
  }
  return result;
}

}  // namespace

InitializedFrom initialize_from(const Checkpoint& checkpoint, ParameterTable& table) {
  std::set<std::string> here, there;
  for (const Segment& segment : table.segments()) here.insert(part_of_base_layer(segment.name));
  for (const TensorEntry& entry : checkpoint.manifest().tensors)
    there.insert(part_of_base_layer(entry.name));
  for (const Segment& segment : table.segments()) {
    if (there.contains(part_of_base_layer(segment.name)))
      load_segment(checkpoint, segment.name, table.view(table.master(), segment));
  }
  table.copy_master_to_working();
  return {.fresh = without(here, there), .left_out = without(there, here)};
}

}  // namespace ballast
