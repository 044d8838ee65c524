// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::record {

// How the program was started on a run; each start is kept in run.json.
struct RunStart {
  uint64_t step = 0;  // steps done before
  std::string program_version;
  std::vector<std::string> command_line;
  std::string hardware = "{}";  // a JSON object
  int workers = 1;
};

// The folder of one training run, locked for this process as long as this object lives:
//   run.json  config.toml  metrics.jsonl  samples.txt  validation.json  tensorboard/  checkpoints/
//   lock
// Errors are UserErrors that name the folder; nothing that was there is overwritten.
class RunDirectory {
 public:
  // True if `path` is the folder of a run. False for anything else, also if nothing is there.
  static bool is_run(const fs::path& path);
  // True while a process of this machine has the run's folder locked: it is training. Just looks:
  // a run that starts meanwhile does not notice.
  static bool in_use(const fs::path& path);
  // Starts a run in a new or empty folder: stores the resolved config and the first start.
  static RunDirectory create(const fs::path& path, std::string_view config, const RunStart& start);
  // Locks the folder of an existing run, and changes nothing else in it.
  static RunDirectory open(const fs::path& path);

  // Removes all that is in the folder, as far as that can be. Only then the lock goes, too: by it a
  // folder is known for a run's, and create() takes it. For a start that failed.
  void clear() const;
  // Adds a start to run.json, once it is decided that the run goes on.
  void record_start(const RunStart& start);
  std::string stored_config() const;  // what create() or store_config() wrote last
  void store_config(std::string_view config);

  const fs::path& path() const { return path_; }
  fs::path config() const { return path_ / "config.toml"; }
  fs::path record() const { return path_ / "run.json"; }
  fs::path metrics() const { return path_ / "metrics.jsonl"; }
  fs::path samples() const { return path_ / "samples.txt"; }
  void remove_validation();  // so that it is not taken for one of a later step
  fs::path validation() const { return path_ / "validation.json"; }
  fs::path tensorboard() const { return path_ / "tensorboard"; }
  fs::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  explicit RunDirectory(const fs::path& path);  // locks

  fs::path path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace ballast::record
