// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/system/file.h"

namespace ballast::checkpoint {

// A checkpoint to read: a step folder or an exported weights file. Opening checks the manifest and
// every file's structure; the bytes of a tensor are checked when asked for. Errors are UserErrors
// that name the checkpoint.
class Checkpoint {
 public:
  explicit Checkpoint(const fs::path& path);

  const fs::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }  // its tensors are the list of names
  bool has(std::string_view name) const { return views_.contains(name); }
  // The tensor, its bytes in the mapped file: valid as long as this object. Throws if the
  // checkpoint lacks it or its checksum does not fit. Any number of threads may call this.
  TensorView tensor(std::string_view name) const;
  // Checks the bytes of all tensors, on up to `threads` threads (0: all cores); tensor() then
  // need not. Throws naming a bad one.
  void verify(size_t threads = 0);

 private:
  void open_folder();
  void open_export();
  void add_view(const TensorEntry& entry, const SafetensorsFile& file);
  void check_bytes(const TensorEntry& entry, const TensorView& view) const;

  struct Tensor {
    size_t entry;            // in manifest_.tensors
    const TensorView* view;  // in one of files_
  };
  fs::path path_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, Tensor, std::less<>> views_;
  bool verified_ = false;
};

struct PassedOver {
  fs::path path;
  std::string reason;  // a sentence for the user that names the path
};

struct NewestValid {
  std::optional<Checkpoint> checkpoint;  // nothing: none verifies
  std::vector<PassedOver> passed_over;   // newer than that one, newest first
};

// The newest checkpoint in a `checkpoints` folder whose every byte verifies. A training may go on
// there: where it deletes what is being read, the next one is taken.
NewestValid find_newest_valid(const fs::path& checkpoints, size_t threads = 0);

// Opens what the user named: a run directory or its `checkpoints` folder (the newest that verifies;
// those passed over are logged), one step folder, or an exported weights file.
Checkpoint open_checkpoint(const fs::path& path);

}  // namespace ballast::checkpoint
