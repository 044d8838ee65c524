// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::checkpoint {

// What stands in a `checkpoints` folder: step_00001234 is a checkpoint; with a suffix it is one
// being written or being deleted, which never counts as one.
inline constexpr std::string_view kTemporarySuffix = ".tmp";
inline constexpr std::string_view kDeletedSuffix = ".deleted";

struct StepFolder {
  uint64_t step = 0;
  fs::path path;
};

std::string step_folder_name(uint64_t step);  // "step_00001234"
// The reverse; nothing for any other name.
std::optional<uint64_t> step_of_name(std::string_view name);

// The folders of all steps with this suffix, oldest step first; none if `checkpoints` is missing.
std::vector<StepFolder> list_step_folders(const fs::path& checkpoints,
                                          std::string_view suffix = "");

// Renames, then deletes, so that no half-deleted folder looks like a checkpoint. What cannot be
// deleted stays, with a warning, until the next start. UserError: it cannot be renamed.
void delete_step_folder(const fs::path& folder);

// Removes what a process that died left behind: half-written and half-deleted checkpoints. Returns
// their names. REQUIRES: no other process writes here (the run directory's lock is held).
std::vector<std::string> remove_leftovers(const fs::path& checkpoints);

}  // namespace ballast::checkpoint
