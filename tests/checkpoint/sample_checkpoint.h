// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/system/random.h"

namespace ballast::test {

// Tensors whose bytes depend on a step, in memory of their own.
class SampleTensors {
 public:
  SampleTensors(uint64_t step, const std::string& prefix, size_t count, size_t elements) {
    memory_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      RandomStream random(step, prefix, i);
      for (size_t k = 0; k < elements; ++k) {
        memory_[i].push_back(static_cast<float>(random.uniform()));
      }
      views_.push_back({prefix + "." + std::to_string(i),
                        checkpoint::Dtype::kF32,
                        {static_cast<int64_t>(elements)},
                        std::as_bytes(std::span(memory_[i]))});
    }
  }
  SampleTensors(const SampleTensors&) = delete;
  SampleTensors& operator=(const SampleTensors&) = delete;

  const std::vector<checkpoint::TensorView>& views() const { return views_; }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<checkpoint::TensorView> views_;
};

inline checkpoint::Manifest sample_manifest(uint64_t step) {
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.data_position = step;
  manifest.config = "[model]\nwidth = 128\nname = \"größe\"\n";
  manifest.program_version = "0.1.0 (test)";
  manifest.state = R"({"seconds":12.25,"skipped_steps":0,"tokens":4096})";
  return manifest;
}

// Saves a checkpoint of two files, as two workers would, and returns its path.
inline fs::path save_sample(const fs::path& checkpoints, uint64_t step, size_t elements = 50) {
  const SampleTensors shared(step, "layer.0.weight", 3, elements);
  const SampleTensors experts(step, "layer.6.expert", 4, elements);
  checkpoint::CheckpointWriter writer(checkpoints, step);
  checkpoint::Manifest manifest = sample_manifest(step);
  manifest.tensors = checkpoint::write_checkpoint_file({writer.folder(), step},
                                                       "shared.safetensors", shared.views());
  for (const checkpoint::TensorEntry& entry : checkpoint::write_checkpoint_file(
           {writer.folder(), 1}, "experts.safetensors", experts.views())) {
    manifest.tensors.push_back(entry);
  }
  return writer.commit(manifest);
}

}  // namespace ballast::test
