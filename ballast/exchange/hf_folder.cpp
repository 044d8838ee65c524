// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/hf_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "ballast/checkpoint/manifest.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"

namespace ballast::exchange {
namespace {

using nlohmann::json;

json read_object(const fs::path& path) {
  try {
    json root = parse_json(read_text(path));
    if (!root.is_object()) fail("{}: want a JSON object", path.string());
    return root;
  } catch (const BadJson& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_pickle(const fs::path& name) {
  constexpr std::array kEndings = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"};
  return std::ranges::find(kEndings, name.extension().string()) != kEndings.end();
}

[[noreturn]] void refuse_pickle(const fs::path& file) {
  fail(
      "{}: weights as a pickle are not read, since opening one runs what it says; have "
      "transformers save the model with safetensors (save_pretrained)",
      file.string());
}

}  // namespace

bool is_hf_folder(const fs::path& path) {
  if (!is_there(path / kConfigFile)) return false;
  const json root = parse_json_or_discard(read_text(path / kConfigFile));
  if (!root.is_object() || root.value("model_type", json()) != kOwnModelType) return true;
  // Of ours, which transformers may have saved again: then our metadata is gone.
  if (!is_there(path / kWeightsFile)) return true;
  const checkpoint::SafetensorsFile weights(path / kWeightsFile);
  return !weights.metadata().contains(std::string(checkpoint::kExportKey));
}

HfFolder::HfFolder(const fs::path& path) : path_(path) {
  if (!is_there(path)) fail("there is no folder {}", path.string());
  if (!is_there(config_path())) {
    fail("{} is no model of Hugging Face's: it has no {}", path.string(), kConfigFile);
  }
  config_ = read_object(config_path());
  if (is_there(path / kWeightsFile)) {
    open_file(path / kWeightsFile);
  } else if (is_there(path / kIndexFile)) {
    open_shards();
  } else {
    refuse_without_weights();
  }
}

void HfFolder::refuse_without_weights() const {
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (is_pickle(entry.path())) refuse_pickle(entry.path());
  }
  fail("{} holds no weights: it has neither {} nor {}", path_.string(), kWeightsFile, kIndexFile);
}

void HfFolder::open_file(const fs::path& file) {
  files_.push_back(std::make_unique<checkpoint::SafetensorsFile>(file));
  for (const checkpoint::TensorView& view : files_.back()->tensors()) {
    const auto [found, is_new] = tensors_.try_emplace(view.name, Place{files_.back().get(), &view});
    if (!is_new) {
      fail("{} has tensor {}, which {} has too", file.string(), view.name,
           found->second.file->path().string());
    }
  }
}

void HfFolder::open_shards() {
  const fs::path index = path_ / kIndexFile;
  const json root = read_object(index);
  const auto map = root.find("weight_map");
  if (map == root.end() || !map->is_object()) {
    fail("{}: want a weight_map, the file of each tensor", index.string());
  }
  std::map<std::string, std::string> file_of;
  std::set<std::string> shards;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() ||
        fs::path(file.get<std::string>()).filename() != file.get<std::string>())
      fail("{}: tensor {} is in {}, which is not a file name", index.string(), name, file.dump());
    if (is_pickle(file.get<std::string>())) refuse_pickle(path_ / file.get<std::string>());
    shards.insert(file_of[name] = file.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (!is_there(path_ / shard)) {
      fail("{} is missing, though {} names it: a part of the model was not copied",
           (path_ / shard).string(), kIndexFile);
    }
    open_file(path_ / shard);
  }
  for (const auto& [name, file] : file_of) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.file->path().filename() != file)
      fail("{} has no tensor {}, though {} says so", (path_ / file).string(), name, kIndexFile);
  }
  for (const auto& [name, place] : tensors_) {
    if (!file_of.contains(name))
      fail("{} has tensor {}, which {} does not name", place.file->path().string(), name,
           kIndexFile);
  }
}

const checkpoint::TensorView* HfFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.view;
}

std::vector<std::string> HfFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const fs::path& HfFolder::file_of(std::string_view name) const {
  return tensors_.find(name)->second.file->path();
}

}  // namespace ballast::exchange
