// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/checkpoint/safetensors.h"
#include "ballast/system/file.h"

namespace ballast::checkpoint {

// Where the files of a checkpoint are written: CheckpointWriter::folder().
struct UnfinishedCheckpoint {
  fs::path folder;
  uint64_t step = 0;
};

// Writes one file of a checkpoint, durably, and returns its entries for the manifest. Checksums are
// computed on up to `threads` threads (0: all cores). Any number of workers and threads may each
// write their own files. Throws UserError, e.g. on a full disk.
std::vector<TensorEntry> write_checkpoint_file(const UnfinishedCheckpoint& checkpoint,
                                               const std::string& file,
                                               std::span<const TensorView> tensors,
                                               size_t threads = 0);

// Saves one checkpoint, all of it or nothing:
//   CheckpointWriter writer(run / "checkpoints", step);
//   manifest.tensors = write_checkpoint_file({writer.folder(), step}, "model.safetensors", views);
//   writer.commit(manifest);
// With many workers one makes the writer and commits; the others write their files into the same
// folder and send it their entries.
class CheckpointWriter {
 public:
  // Creates the temporary folder. REQUIRES: one writer at a time per `checkpoints` folder.
  CheckpointWriter(const fs::path& checkpoints, uint64_t step);
  ~CheckpointWriter();  // not committed: removes the temporary folder
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  const fs::path& folder() const { return temporary_; }
  // Writes the manifest and renames the folder to step_NNNNNNNN, in place of an older one of that
  // step. Once it returns, the checkpoint is durable. Returns its path. REQUIRES: every file named
  // in manifest.tensors has been written, manifest.step is the writer's.
  fs::path commit(const Manifest& manifest);

 private:
  fs::path temporary_, final_;
  uint64_t step_;
};

// Writes tensors and manifest (its list of tensors is filled in here) as one file that
// open_checkpoint and any safetensors reader accept.
void export_weights(const fs::path& file, std::span<const TensorView> tensors, Manifest manifest);

}  // namespace ballast::checkpoint
