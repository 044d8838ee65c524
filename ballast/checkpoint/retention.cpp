// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/retention.h"

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/step_folders.h"

namespace ballast::checkpoint {

std::vector<uint64_t> delete_old_checkpoints(const fs::path& checkpoints,
                                             const Retention& retention) {
  const auto folders = list_step_folders(checkpoints);
  if (retention.keep_last == 0 || folders.size() <= retention.keep_last) return {};
  std::vector<StepFolder> old(folders.begin(),
                              folders.end() - static_cast<ptrdiff_t>(retention.keep_last));
  std::erase_if(old, [&](const StepFolder& folder) {
    return retention.keep_every != 0 && folder.step % retention.keep_every == 0;
  });
  if (old.empty()) return {};

  fs::path newest = retention.just_written;
  if (newest.empty()) {
    const NewestValid found = find_newest_valid(checkpoints);
    if (!found.checkpoint) return {};  // nothing verifies: leave all for a person to look at
    newest = found.checkpoint->path();
  }
  std::vector<uint64_t> deleted;
  for (const StepFolder& folder : old) {
    if (folder.path == newest) continue;
    delete_step_folder(folder.path);
    deleted.push_back(folder.step);
  }
  return deleted;
}

}  // namespace ballast::checkpoint
