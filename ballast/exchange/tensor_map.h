// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/exchange/family.h"
#include "ballast/exchange/hf_folder.h"

namespace ballast::exchange {

// How the tensors of a family are called and laid out; what differs between versions.
struct Layout {
  std::string prefix;           // of all but the output: "model.", "transformer." or ""
  std::string experts = "mlp";  // what the block calls its layer of experts
  bool packed = false;          // a layer's experts are stacked: [E, 2 F, D] and [E, D, F]
};

// As the models on the hub have it: experts one by one.
Layout usual_layout(Family family);
// As this folder has it.
Layout layout_of(const HfFolder& folder, Family family);

// Some rows of one of our tensors, as a tensor of theirs.
struct Part {
  std::string name;
  std::vector<int64_t> shape;         // of theirs
  std::optional<int64_t> slice = {};  // which one of a stack, whose first extent counts them
  bool transposed = false;            // theirs is [columns, rows]
};

// One of our tensors: the rows of its parts, one after another.
struct Correspondence {
  std::string ours;
  std::vector<int64_t> shape;
  std::vector<Part> parts;
};

// All tensors of the model, theirs each in one part (of a stack: in one for each slice).
// REQUIRES: config is of that family.
std::vector<Correspondence> correspondences(Family family, const config::Config& config,
                                            const Layout& layout);

// Whether a tensor that corresponds to none may be in a file: masks and angles that older versions
// kept, and the output's matrix where it is the embedding.
bool is_ignored(Family family, const config::Config& config, const std::string& name);
inline constexpr const char* kOutputWeight = "lm_head.weight";

}  // namespace ballast::exchange
