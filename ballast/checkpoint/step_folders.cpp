// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/step_folders.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/number_from.h"

namespace ballast::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";

// What cannot be deleted is no reason to end a training: a file of it may be read on another
// machine, which NFS keeps until then. The next start tries again.
bool remove_folder(const fs::path& folder) {
  std::error_code code;
  fs::remove_all(folder, code);
  if (code) log_warning("cannot delete {}: {}", folder.string(), code.message());
  return !code;
}

}  // namespace

std::optional<uint64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const auto step = number_from<uint64_t>(name.substr(kPrefix.size()));
  return step && step_folder_name(*step) == name ? step : std::nullopt;
}

std::string step_folder_name(uint64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::vector<StepFolder> list_step_folders(const fs::path& checkpoints, std::string_view suffix) {
  std::vector<StepFolder> folders;
  std::error_code code;
  auto entry = fs::directory_iterator(checkpoints, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(suffix)) continue;
    const auto step = step_of_name(std::string_view(name).substr(0, name.size() - suffix.size()));
    std::error_code gone;  // deleted meanwhile: then it is none
    if (step && entry->is_directory(gone)) folders.push_back({*step, entry->path()});
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    fail("cannot list the checkpoints in {}: {}", checkpoints.string(), code.message());
  }
  std::sort(folders.begin(), folders.end(),
            [](const StepFolder& a, const StepFolder& b) { return a.step < b.step; });
  return folders;
}

void delete_step_folder(const fs::path& folder) {
  fs::path deleted = folder;
  deleted += kDeletedSuffix;
  remove_folder(deleted);
  std::error_code code;
  fs::rename(folder, deleted, code);
  if (code) fail("cannot delete {}: {}", folder.string(), code.message());
  sync_folder(folder.parent_path());
  remove_folder(deleted);
}

std::vector<std::string> remove_leftovers(const fs::path& checkpoints) {
  std::vector<std::string> removed;
  for (const std::string_view suffix : {kTemporarySuffix, kDeletedSuffix}) {
    for (const StepFolder& folder : list_step_folders(checkpoints, suffix)) {
      if (remove_folder(folder.path)) removed.push_back(folder.path.filename().string());
    }
  }
  return removed;
}

}  // namespace ballast::checkpoint
