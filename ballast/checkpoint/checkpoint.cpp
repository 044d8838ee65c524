// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/parallel.h"

namespace ballast::checkpoint {
namespace {

// Unlike the throwing ones of std::filesystem, false also where we may not look.
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Runs `use`; if the checkpoint turns out to be bad, says what to do about it.
template <typename Use>
auto advising(Use use) {
  try {
    return use();
  } catch (const UserError& error) {
    fail("{} (use another checkpoint of that run, or a copy of this one)", error.what());
  }
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path) : path_(path) {
  if (is_folder(path)) {
    open_folder();
  } else {
    open_export();
  }
  size_t held = 0;
  for (const auto& [name, file] : files_) held += file.tensors().size();
  if (held != views_.size()) {
    fail("checkpoint {} is corrupt: it holds {} tensors, its manifest lists {}", path_.string(),
         held, views_.size());
  }
}

void Checkpoint::open_folder() {
  const fs::path manifest = path_ / kManifestName;
  if (!is_there(manifest)) {
    fail("{} is not a complete checkpoint: it has no {}", path_.string(), kManifestName);
  }
  manifest_ = parse_manifest(read_text(manifest), manifest.string());
  const fs::path name = path_.has_filename() ? path_.filename() : path_.parent_path().filename();
  if (const auto step = step_of_name(name.string()); step && *step != manifest_.step) {
    fail("checkpoint {} is not what its name says: its manifest is of step {}", path_.string(),
         manifest_.step);
  }
  for (const TensorEntry& entry : manifest_.tensors) {
    auto file = files_.find(entry.file);
    if (file == files_.end()) {
      if (entry.file.empty() || fs::path(entry.file).filename() != entry.file) {
        fail("checkpoint {} is corrupt: '{}' is not a file name", path_.string(), entry.file);
      }
      file = files_.try_emplace(entry.file, path_ / entry.file).first;
    }
    add_view(entry, file->second);
  }
}

void Checkpoint::open_export() {
  const SafetensorsFile& file = files_.try_emplace("", path_).first->second;
  const auto text = file.metadata().find(std::string(kExportKey));
  if (text == file.metadata().end()) {
    fail(
        "{} was not written by `ballast export`: it has no '{}' in its metadata (`ballast import` "
        "takes over a folder of Hugging Face's)",
        path_.string(), kExportKey);
  }
  manifest_ = parse_manifest(text->second, path_.string());
  for (const TensorEntry& entry : manifest_.tensors) add_view(entry, file);
}

void Checkpoint::add_view(const TensorEntry& entry, const SafetensorsFile& file) {
  const TensorView* view = file.find(entry.name);
  if (view == nullptr) {
    fail("checkpoint {} is corrupt: {} lacks tensor '{}'", path_.string(), file.path().string(),
         entry.name);
  }
  if (view->dtype != entry.dtype || view->shape != entry.shape) {
    fail("checkpoint {} is corrupt: tensor '{}' is {} in its manifest and {} in {}", path_.string(),
         entry.name, describe(entry.dtype, entry.shape), describe(view->dtype, view->shape),
         file.path().string());
  }
  views_[entry.name] = {static_cast<size_t>(&entry - manifest_.tensors.data()), view};
}

void Checkpoint::check_bytes(const TensorEntry& entry, const TensorView& view) const {
  if (checksum(view.data) != entry.checksum) {
    fail("checkpoint {} is corrupt: the checksum of tensor '{}' does not fit its bytes{}",
         path_.string(), entry.name, entry.file.empty() ? "" : " in " + entry.file);
  }
}

TensorView Checkpoint::tensor(std::string_view name) const {
  const auto found = views_.find(name);
  if (found == views_.end()) {
    fail("checkpoint {} has no tensor '{}': it is of another model, or of weights alone",
         path_.string(), name);
  }
  const auto& [entry, view] = found->second;
  if (!verified_) {
    advising([&, entry = entry, view = view] { check_bytes(manifest_.tensors[entry], *view); });
  }
  return *view;
}

void Checkpoint::verify(size_t threads) {
  std::vector<const Tensor*> tensors;
  for (const auto& [name, tensor] : views_) tensors.push_back(&tensor);
  // Large ones first, so that no thread is left with one at the end.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor* a, const Tensor* b) {
    return a->view->data.size() > b->view->data.size();
  });
  parallel_for(tensors.size(), threads, [&](size_t i) {
    check_bytes(manifest_.tensors[tensors[i]->entry], *tensors[i]->view);
  });
  verified_ = true;
}

namespace {

struct Candidate {
  StepFolder folder;
  std::string_view suffix;

  bool operator==(const Candidate& other) const { return folder.path == other.folder.path; }
};

// Step folders with those being written, newest first.
std::vector<Candidate> list_candidates(const fs::path& checkpoints) {
  std::vector<Candidate> candidates;
  for (const std::string_view suffix : {std::string_view(), kTemporarySuffix}) {
    for (const StepFolder& folder : list_step_folders(checkpoints, suffix)) {
      candidates.push_back({folder, suffix});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.folder.step > b.folder.step; });
  return candidates;
}

// Which folder has this name now, as a number; 0: none.
uint64_t folder_number(const fs::path& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

// Nothing where a training that goes on has deleted or replaced a folder while it was read.
std::optional<NewestValid> look_for_newest(const fs::path& checkpoints, size_t threads) {
  NewestValid result;
  const std::vector<Candidate> candidates = list_candidates(checkpoints);
  for (const auto& [folder, suffix] : candidates) {
    if (!suffix.empty()) {
      result.passed_over.push_back(
          {folder.path,
           fmt::format("{}: saving it goes on, or was interrupted", folder.path.string())});
      continue;
    }
    const uint64_t number = folder_number(folder.path);
    try {
      Checkpoint checkpoint(folder.path);
      checkpoint.verify(threads);
      result.checkpoint.emplace(std::move(checkpoint));
      break;
    } catch (const UserError& error) {
      if (number == 0 || folder_number(folder.path) != number) return std::nullopt;
      result.passed_over.push_back({folder.path, error.what()});
    }
  }
  // While it is listed, a folder may lose one name before it gets the next.
  if (!result.checkpoint && list_candidates(checkpoints) != candidates) return std::nullopt;
  return result;
}

}  // namespace

NewestValid find_newest_valid(const fs::path& checkpoints, size_t threads) {
  constexpr int kAttempts = 100;  // a training that deletes faster than that is not one
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    if (auto found = look_for_newest(checkpoints, threads)) return std::move(*found);
  }
  fail("checkpoints in {} are deleted faster than they can be read: copy one, or wait",
       checkpoints.string());
}

Checkpoint open_checkpoint(const fs::path& path) {
  if (!is_there(path)) {
    fail("no checkpoint at {}: give a run directory, a checkpoint folder or an exported file",
         path.string());
  }
  if (!is_folder(path) || is_there(path / kManifestName) ||
      path.filename().string().starts_with("step_")) {
    return advising([&] { return Checkpoint(path); });
  }
  const fs::path folder = is_folder(path / "checkpoints") ? path / "checkpoints" : path;
  NewestValid newest = find_newest_valid(folder);
  if (newest.checkpoint) {
    for (const PassedOver& passed : newest.passed_over) {
      log_warning("passed over: {}", passed.reason);
    }
    return std::move(*newest.checkpoint);
  }
  if (newest.passed_over.empty()) fail("there is no checkpoint in {}", path.string());
  std::string reasons;
  for (const PassedOver& passed : newest.passed_over) {
    reasons += "\n  " + passed.reason;
  }
  fail("no checkpoint in {} can be used:{}", path.string(), reasons);
}

}  // namespace ballast::checkpoint
