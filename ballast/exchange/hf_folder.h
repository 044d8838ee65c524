// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/checkpoint/safetensors.h"
#include "ballast/system/file.h"

namespace ballast::exchange {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
// Of config.json in exports of ours: its model_type, and where the config is in our own words.
inline constexpr const char* kOwnModelType = "ballast";
inline constexpr const char* kOwnConfigKey = "ballast_config";

// Whether a folder holds a model as transformers saves one, other than by `ballast export`. One
// that transformers loaded from an export of ours and saved again is such a folder.
bool is_hf_folder(const fs::path& path);

// A model as transformers saves one: config.json, and the weights in one safetensors file or in
// shards with an index. Weights as pickles are refused by their name and never opened. Errors are
// UserErrors that name the file.
class HfFolder {
 public:
  explicit HfFolder(const fs::path& path);

  const fs::path& path() const { return path_; }
  fs::path config_path() const { return path_ / kConfigFile; }
  const nlohmann::json& config() const { return config_; }
  // Valid as long as this object; nullptr: not there.
  const checkpoint::TensorView* find(std::string_view name) const;
  std::vector<std::string> names() const;  // of all tensors, sorted
  // The file a tensor is in, for messages. REQUIRES: it is there.
  const fs::path& file_of(std::string_view name) const;

 private:
  void open_shards();
  void open_file(const fs::path& file);
  [[noreturn]] void refuse_without_weights() const;

  struct Place {
    const checkpoint::SafetensorsFile* file;
    const checkpoint::TensorView* view;
  };
  fs::path path_;
  nlohmann::json config_;
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files_;
  std::map<std::string, Place, std::less<>> tensors_;
};

}  // namespace ballast::exchange
