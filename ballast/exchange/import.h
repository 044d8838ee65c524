// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/exchange/hf_folder.h"
#include "ballast/exchange/read_config.h"
#include "ballast/exchange/tensor_map.h"

namespace ballast::exchange {

// A model of transformers as one of ours: its config, and all its tensors under our names, in the
// precision they have there.
class ImportedModel {
 public:
  // UserError: see HfFolder and read_model(); a tensor is missing, of another shape, or more than
  // the model has (of our own family that is for the caller to see); numbers that are not fp32,
  // bf16 or fp16.
  explicit ImportedModel(const fs::path& folder, int64_t context = 0);

  Family family() const { return model_.family; }
  const config::Config& config() const { return model_.config; }
  // Valid as long as this object.
  const std::vector<checkpoint::TensorView>& tensors() const { return tensors_; }

 private:
  void take_all();  // of a model of ours, whose names are ours
  void take(const Correspondence& wanted);
  void check_number(const checkpoint::TensorView& tensor) const;
  const checkpoint::TensorView& part_of(const Correspondence& wanted, const Part& part) const;
  void check_nothing_is_left(const std::vector<Correspondence>& taken) const;

  HfFolder folder_;
  HfModel model_;
  std::deque<std::vector<std::byte>> joined_;  // bytes that lie apart or otherwise in the files
  std::vector<checkpoint::TensorView> tensors_;
};

// Writes it as `ballast export` does: one file that all commands take. `manifest`: what else is
// known of it; its config is filled in.
void write_imported(const fs::path& file, const ImportedModel& model,
                    checkpoint::Manifest manifest);

}  // namespace ballast::exchange
