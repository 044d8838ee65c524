// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace ballast::cli {

// --watch[=PORT] of train. Workers and the run's record know nothing of it.
struct WatchOption {
  bool wanted = false;
  uint16_t port = 8080;
  std::string value = {};  // as it was given
};
inline constexpr const char* kWatchOption = "--watch";
void add_watch_option(CLI::App& command, WatchOption& option);

// The live view of a run while it trains: `ballast serve RUN --watch`, a process of its own with
// the lowest priority, and the first to go where memory runs out. Whatever happens to it is a
// warning, and training goes on. It ends with this object, or when this process dies.
class RunWatcher {
 public:
  // Says at which address it is; where the port is taken, at another. Nothing happens unless it is
  // wanted. REQUIRES: called by the process's first thread.
  RunWatcher(const WatchOption& option, const std::filesystem::path& run);
  ~RunWatcher();
  RunWatcher(const RunWatcher&) = delete;
  RunWatcher& operator=(const RunWatcher&) = delete;

  // The run has ended: lets pages ask once more, so that they show its end.
  void show_end() const;

 private:
  pid_t process_ = -1;
  int complaints_ = -1;  // a file in memory that is its stderr
};

}  // namespace ballast::cli
