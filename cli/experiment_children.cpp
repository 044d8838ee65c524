// SPDX-License-Identifier: Apache-2.0
#include "cli/experiment_children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <sstream>
#include <thread>

#include "ballast/system/argument_pointers.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast::cli {
namespace {

struct Child {
  size_t number = 0;
  pid_t process = 0;
};

void write_heading(int log, const std::vector<std::string>& words) {
  const std::string line = fmt::format("$ {}\n", fmt::join(words, " "));
  (void)!::write(log, line.data(), line.size());
}

pid_t start(const ChildCommand& command) {
  std::vector<std::string> arguments = command.arguments;
  arguments.insert(arguments.begin(), fs::read_symlink("/proc/self/exe").string());
  const std::vector<char*> words = argument_pointers(arguments);
  const int log = ::open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log < 0) fail_with_errno("write", command.log);
  write_heading(log, arguments);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail("cannot start {}: {}", words[0], std::strerror(errno));
  if (child > 0) {
    ::close(log);
    return child;
  }
  // From here to execv only what a signal handler may do: the parent may have threads.
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::execv(words[0], words.data());
  ::_exit(127);
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

void run_children(const std::vector<ChildCommand>& commands, const ChildWatch& watch,
                  const StopSignal& stop) {
  std::vector<Child> running;
  bool was_asked = false;
  for (size_t next = 0; next < commands.size() || !running.empty();) {
    if (stop.requested()) {
      next = commands.size();
      for (const Child& child : running) {
        if (!was_asked) ::kill(child.process, SIGTERM);
      }
      was_asked = true;
    }
    if (next < commands.size() && std::ssize(running) < watch.at_once) {
      watch.started(next);
      running.push_back({next, start(commands[next])});
      ++next;
      continue;
    }
    for (auto child = running.begin(); child != running.end();) {
      int status = 0;
      if (::waitpid(child->process, &status, WNOHANG) != child->process) {
        ++child;
        continue;
      }
      const size_t number = child->number;
      child = running.erase(child);
      watch.has_ended(number, code_of(status));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string last_lines(const std::filesystem::path& log, size_t count) {
  std::istringstream text(read_text(log));
  std::deque<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back("  " + line);
    if (lines.size() > count) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace ballast::cli
