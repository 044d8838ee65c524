// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/config/config.h"
#include "ballast/system/file.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::exchange {

inline constexpr const char* kModelingFile = "modeling_ballast.py";
// Its text: the model in PyTorch, for what no family of transformers computes.
std::string_view modeling_ballast();

struct HfExport {
  const config::Config& config;
  std::span<const checkpoint::TensorView> tensors;  // under our names, prices too; one precision
  const checkpoint::Manifest& manifest;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: there is none
  fs::path tokenizer_folder = {};                   // it was loaded from; empty: it is written anew
};

// Writes a folder that transformers loads: config.json, model.safetensors and the tokenizer's
// files. Where no family of transformers computes what the model does, the weights keep our names
// and the manifest, so that our commands take the folder too, and modeling_ballast.py lies beside.
// Returns the architecture. UserError: a file cannot be written.
std::string write_hf_folder(const fs::path& folder, const HfExport& model);

}  // namespace ballast::exchange
