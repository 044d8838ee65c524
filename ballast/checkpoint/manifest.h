// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/checkpoint/safetensors.h"

namespace ballast::checkpoint {

inline constexpr uint64_t kCheckpointVersion = 1;  // of the format; newer ones are refused
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kExportKey = "ballast.manifest";  // metadata of exported weights

// What the manifest says of one tensor.
struct TensorEntry {
  std::string name;  // global: never that of a worker
  std::string file;  // in the checkpoint's folder; empty in an exported weights file
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t checksum = 0;  // XXH3 of its bytes

  bool operator==(const TensorEntry&) const = default;
};

// What a run read, by its content: the same data may lie elsewhere later.
struct DataEntry {
  std::string role;         // "train", "valid", "tokenizer", or "frame" (loading/framing.h)
  std::string name;         // as the user called it
  std::string fingerprint;  // equal for equal content

  bool operator==(const DataEntry&) const = default;
};

// Everything in a checkpoint that is not a tensor, and the list of those that are.
struct Manifest {
  uint64_t step = 0;           // steps done
  uint64_t data_position = 0;  // batches consumed: the next one to train on
  std::string config;          // the resolved config, as text
  std::string program_version;
  std::string state = "{}";     // a JSON object, the trainer's own: counters, tokens, seconds
  std::vector<DataEntry> data;  // those of a role in order; empty: an older program wrote it
  std::vector<TensorEntry> tensors;

  bool operator==(const Manifest&) const = default;
};

// The text of manifest.json, with a checksum over all of it. REQUIRES: `state` is a JSON object,
// tensor names are distinct.
std::string manifest_text(const Manifest& manifest);
// The reverse. Throws UserError naming `where` if the text is damaged (every byte counts) or of a
// newer format version.
Manifest parse_manifest(std::string_view text, const std::string& where);

// Entries as JSON text, for workers that send theirs to the one that commits.
std::string entries_text(std::span<const TensorEntry> entries);
// REQUIRES: a text from entries_text.
std::vector<TensorEntry> parse_entries(std::string_view text);

}  // namespace ballast::checkpoint
