// SPDX-License-Identifier: Apache-2.0
#include "cli/run_watcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "ballast/system/argument_pointers.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/number_from.h"
#include "cli/command_words.h"

namespace ballast::cli {
namespace {

// The port, if it is free; 0: any that is. Returns 0 where there is none.
uint16_t free_port(uint16_t wanted) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return 0;
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wanted);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* where = reinterpret_cast<sockaddr*>(&address);
  // A server that others have there may share the address until it is listened at.
  const bool is_free = ::bind(socket, where, size) == 0 && ::listen(socket, 1) == 0 &&
                       ::getsockname(socket, where, &size) == 0;
  ::close(socket);
  return is_free ? ntohs(address.sin_port) : 0;
}

// What tells a worker of mpirun or srun that it is one.
bool is_of_workers(std::string_view variable) {
  return variable.starts_with("OMPI_") || variable.starts_with("PMI") ||
         variable.starts_with("SLURM_STEP");
}

// Behind the training, and the first that the system ends when memory is short. At the very lowest
// priority it would take minutes on a busy machine to load its libraries: it goes there afterwards.
void step_behind() {
  ::setpriority(PRIO_PROCESS, 0, 10);
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) (void)!::write(score, "1000", 4);
}

// -1: it could not be started, and errno tells why.
pid_t start(std::vector<std::string> command, int complaints) {
  std::vector<std::string> variables = environment_without(is_of_workers);
  const std::vector<char*> words = argument_pointers(command),
                           environment = argument_pointers(variables);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child != 0) return child;
  // From here to execve only what a signal handler may do: the parent may have threads.
  ::setpgid(0, 0);  // Ctrl-C is for the training, which saves first
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  step_behind();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(complaints >= 0 ? complaints : null, STDERR_FILENO);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::execve(words[0], words.data(), environment.data());
  ::_exit(127);
}

std::string last_line(int file) {
  std::array<char, 1000> end{};
  const off_t size = ::lseek(file, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(end.size()));
  const ssize_t got = ::pread(file, end.data(), end.size(), from);
  std::string_view text(end.data(), static_cast<size_t>(std::max<ssize_t>(0, got)));
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

}  // namespace

void add_watch_option(CLI::App& command, WatchOption& option) {
  command
      .add_flag(kWatchOption, option.value,
                "show loss, speed, balance and samples on a page while it trains, at port 8080, or "
                "at another with --watch=PORT (docs/live.md); the training does not notice it")
      ->each([&option](const std::string& value) {
        option.wanted = true;
        if (value == "true") return;  // nothing was said
        option.port = number_from<uint16_t>(value).value_or(0);
        if (option.port == 0) fail("--watch={}: a port is a number from 1 to 65535", value);
      });
}

RunWatcher::RunWatcher(const WatchOption& option, const std::filesystem::path& run) {
  if (!option.wanted) return;
  uint16_t port = free_port(option.port);
  if (port == 0) {
    port = free_port(0);
    log_warning("--watch: port {} is taken{}", option.port,
                port == 0 ? ", and no other is free: there is no live view" : "; using another");
  }
  if (port == 0) return;
  complaints_ = ::memfd_create("watcher", MFD_CLOEXEC);
  // A model is loaded only where somebody asks for it; never onto the GPU that trains.
  process_ = start({own_command_line().front(), "serve", run.string(), "--watch", "--port",
                    std::to_string(port), "--device", "cpu"},
                   complaints_);
  if (process_ < 0) {
    log_warning("--watch: there is no live view, since no process can be started: {}",
                std::strerror(errno));
    return;
  }
  log_info("live view: http://127.0.0.1:{}/live", port);
}

RunWatcher::~RunWatcher() {
  if (process_ > 0) {
    const pid_t ended = ::waitpid(process_, nullptr, WNOHANG);
    if (ended == process_) {
      const std::string reason = last_line(complaints_);
      log_warning("--watch: the live view ended before the training{}{}",
                  reason.empty() ? "" : ": ", reason);
    } else if (ended == 0) {
      ::kill(process_, SIGKILL);  // it has nothing to save
      while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  if (complaints_ >= 0) ::close(complaints_);
}

void RunWatcher::show_end() const {
  constexpr std::chrono::milliseconds kUntilAsked{1500};  // pages ask every second
  if (process_ > 0) std::this_thread::sleep_for(kUntilAsked);
}

}  // namespace ballast::cli
