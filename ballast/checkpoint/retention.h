// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::checkpoint {

// Which checkpoints stay.
struct Retention {
  uint64_t keep_last = 0;   // this many newest ones; 0: all
  uint64_t keep_every = 0;  // and those whose step is a multiple of this, for ever; 0: none
  // The newest one, if this process has just written it: it is not read again, which takes minutes
  // where it is large. Empty: look for it.
  fs::path just_written = {};
};

// Deletes the checkpoints that `retention` does not keep and returns their steps. Before anything
// is deleted the newest is read back and verified, unless it was just written; if it does not
// verify, the newest that does stays too.
std::vector<uint64_t> delete_old_checkpoints(const fs::path& checkpoints,
                                             const Retention& retention);

}  // namespace ballast::checkpoint
