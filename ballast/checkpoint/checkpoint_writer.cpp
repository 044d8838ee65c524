// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/parallel.h"
#include "ballast/system/progress.h"

namespace ballast::checkpoint {
namespace {

std::vector<TensorEntry> make_entries(const std::string& file, std::span<const TensorView> tensors,
                                      size_t threads) {
  std::vector<TensorEntry> entries(tensors.size());
  parallel_for(tensors.size(), threads, [&](size_t i) {
    const TensorView& tensor = tensors[i];
    entries[i] = {tensor.name, file, tensor.dtype, tensor.shape, checksum(tensor.data)};
  });
  return entries;
}

// Runs `save`, which writes `bytes`; if it fails, says what that means and what to do.
void saving(uint64_t step, uint64_t bytes, const fs::path& folder,
            const std::function<void()>& save) {
  try {
    save();
  } catch (const UserError& error) {
    std::error_code code;
    const auto space = fs::space(folder, code);
    const std::string shortage =
        code || space.available >= bytes
            ? ""
            : fmt::format(" ({} needed, {} free)", format_bytes(static_cast<double>(bytes)),
                          format_bytes(static_cast<double>(space.available)));
    fail(
        "cannot save the checkpoint of step {}: {}{}. Earlier checkpoints are untouched: put that "
        "right and continue from the newest one",
        step, error.what(), shortage);
  }
}

void rename_over(const fs::path& temporary, const fs::path& target) {
  if (::rename(temporary.c_str(), target.c_str()) == 0) return;
  if (errno == EEXIST || errno == ENOTEMPTY) {
    // The step was saved before: swap the two in one move, so that one of them is always there.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      return;
    }
    if (errno == EINVAL || errno == ENOSYS) {  // a file system that cannot swap
      delete_step_folder(target);
      if (::rename(temporary.c_str(), target.c_str()) == 0) return;
    }
  }
  fail("cannot rename {}: {}", temporary.string(), std::strerror(errno));
}

}  // namespace

std::vector<TensorEntry> write_checkpoint_file(const UnfinishedCheckpoint& checkpoint,
                                               const std::string& file,
                                               std::span<const TensorView> tensors,
                                               size_t threads) {
  uint64_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += tensor.data.size();
  std::vector<TensorEntry> entries;
  saving(checkpoint.step, bytes, checkpoint.folder, [&] {
    entries = make_entries(file, tensors, threads);
    write_safetensors(checkpoint.folder / file, tensors);
  });
  return entries;
}

CheckpointWriter::CheckpointWriter(const fs::path& checkpoints, uint64_t step)
    : final_(checkpoints / step_folder_name(step)), step_(step) {
  temporary_ = final_;
  temporary_ += kTemporarySuffix;
  saving(step_, 0, checkpoints, [&] {
    std::error_code code;
    fs::remove_all(temporary_, code);
    make_folder(checkpoints);
    make_own_folder(temporary_);
    sync_folder(checkpoints);
  });
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;  // what cannot be removed now is a leftover for the next start
  fs::remove_all(temporary_, ignored);
}

fs::path CheckpointWriter::commit(const Manifest& manifest) {
  if (manifest.step != step_) throw std::invalid_argument("a manifest of another step");
  const std::string text = manifest_text(manifest);
  saving(step_, text.size(), temporary_, [&] {
    write_text_atomically(temporary_ / kManifestName, text);
    rename_over(temporary_, final_);
    sync_folder(final_.parent_path());
  });
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);  // after a swap: the older checkpoint of this step
  return final_;
}

void export_weights(const fs::path& file, std::span<const TensorView> tensors, Manifest manifest) {
  manifest.tensors = make_entries("", tensors, 0);
  write_safetensors(file, tensors,
                    {{"format", "pt"}, {std::string(kExportKey), manifest_text(manifest)}});
}

}  // namespace ballast::checkpoint
