// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/world.h"
#include "ballast/system/error.h"
#include "ballast/system/stop_signal.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// Where a program is on the PATH; empty: nowhere.
fs::path find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code error;
    if (::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file, error)) return file;
  }
  return {};
}

void check_can_launch(const LaunchOptions& options) {
  if (options.workers < 1)
    fail("the number of workers is {}; at least 1 is needed", options.workers);
  if (options.command.empty()) fail("there is no program to start workers of");
  // A step of Slurm with one task may be a shell, in which people start workers.
  const int started = num_started_workers();
  if (started > 1 || (started == 1 && std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr)) {
    fail(
        "this is one of {} workers that mpirun or srun has started: it cannot start {} of its own. "
        "Give the number of workers to one of the two, not to both",
        started, options.workers);
  }
  if (const fs::path plugin = mpi_plugin_path(); !fs::exists(plugin)) {
    fail(
        "cannot start {} workers: there is no {}. Install OpenMPI (Debian, Ubuntu: apt-get install "
        "openmpi-bin libopenmpi-dev) and build again",
        options.workers, plugin.string());
  }
}

// Closed when it goes.
struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  int fd;
};

// Keeps the signals that ask this process to stop, to be read from fd() while it exists.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
    fd_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~HeldSignals() {
    ::close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }
  // The next one, 0: none.
  int take() const {
    signalfd_siginfo info;
    return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_;
  int fd_ = -1;
};

// mpirun, with the writing ends of pipes as its stdout (where given) and stderr.
pid_t start(std::vector<std::string> command, int out, int err, const HeldSignals& signals) {
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail("cannot start {}: {}", command.front(), std::strerror(errno));
  if (child > 0) return child;
  // From here to execv only what a signal handler may do: the parent may have had threads.
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which asks workers to stop before it ends them
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  pthread_sigmask(SIG_SETMASK, &signals.before(), nullptr);
  ::execv(words[0], words.data());
  ::_exit(127);
}

// Passes on what comes through a pipe, line by line.
class Relay {
 public:
  Relay(int fd, std::FILE* to, MpirunOutput& output) : fd_(fd), to_(to), output_(output) {}

  int fd() const { return fd_; }  // -1: has ended
  void read() {
    std::array<char, 1 << 16> piece;
    const ssize_t got = ::read(fd_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      if (!rest_.empty()) show(std::exchange(rest_, {}));
      fd_ = -1;
      return;
    }
    rest_.append(piece.data(), static_cast<size_t>(got));
    size_t from = 0;
    for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1)
      show(rest_.substr(from, end - from));
    rest_.erase(0, from);
  }

 private:
  void show(const std::string& line) {
    const auto shown = output_.take(line);
    if (!shown) return;
    std::fputs((*shown + "\n").c_str(), to_);
    std::fflush(to_);
  }

  int fd_;
  std::FILE* to_;
  MpirunOutput& output_;
  std::string rest_;
};

// How often this process was asked to stop, and by which signal last.
struct Stops {
  int times = 0, last_signal = 0;
};

// Asks to stop, then ends, then kills.
void pass_on_stop(pid_t mpirun, int times) {
  if (times == 1)
    fmt::print(stderr, "{}{}", ::isatty(STDERR_FILENO) != 0 ? "\n" : "", kStopMessage);
  ::kill(mpirun, times == 1 ? SIGUSR1 : times == 2 ? SIGTERM : SIGKILL);
}

Stops relay_until_end(pid_t mpirun, std::array<Relay*, 2> relays, const HeldSignals& signals) {
  Stops stops;
  while (std::ranges::any_of(relays, [](const Relay* relay) { return relay->fd() >= 0; })) {
    std::array<pollfd, 3> events{{{relays[0]->fd(), POLLIN, 0},  // one of -1 is passed over
                                  {relays[1]->fd(), POLLIN, 0},
                                  {signals.fd(), POLLIN, 0}}};
    if (::poll(events.data(), events.size(), -1) < 0) continue;
    for (size_t i = 0; i < relays.size(); ++i) {
      if (events[i].revents != 0) relays[i]->read();
    }
    if (events[2].revents == 0) continue;
    if (const int signal = signals.take(); signal != 0) {
      stops = {stops.times + 1, signal};
      pass_on_stop(mpirun, stops.times);
    }
  }
  return stops;
}

// Where a worker that ends the job writes its number and code: memory of the launcher, which its
// workers, on the same machine, open by its name in /proc.
constexpr const char* kNotebook = "BALLAST_LAUNCHER_NOTEBOOK";

std::optional<WorkerFailure> first_note(int notebook) {
  std::array<char, 64> text{};
  WorkerFailure failure;
  if (notebook < 0 || ::pread(notebook, text.data(), text.size() - 1, 0) <= 0) return std::nullopt;
  if (std::sscanf(text.data(), "%d %d", &failure.worker, &failure.code) != 2) return std::nullopt;
  failure.told = true;
  failure.text = fmt::format("worker {} ended the job with code {}", failure.worker, failure.code);
  return failure;
}

// `note` is what a worker wrote, `seen` what mpirun's own messages say.
LaunchResult result_of(int status, Stops stops, std::optional<WorkerFailure> note,
                       std::optional<WorkerFailure> seen) {
  LaunchResult result;
  result.stops = stops.times;
  const int mpiruns = WIFSIGNALED(status) ? WTERMSIG(status) : 0, workers = seen ? seen->signal : 0;
  // By the second request, or by the first, before anyone could listen to it.
  if (status != 0 &&
      (stops.times > 1 || (stops.times == 1 && (mpiruns == SIGUSR1 || workers == SIGUSR1)))) {
    result.code = 128 + stops.last_signal;
    result.reason = fmt::format("the workers were ended by signal {}", stops.last_signal);
    return result;
  }
  if (mpiruns != 0) {
    result.code = 128 + mpiruns;
    result.reason = fmt::format("mpirun was ended by signal {}", mpiruns);
    return result;
  }
  // An mpirun that was told to go on without a worker gives 0.
  result.code = WEXITSTATUS(status) == 0 && note ? note->code : WEXITSTATUS(status);
  if (result.code == 0) return result;
  result.failed = note ? std::move(note) : std::move(seen);
  result.reason =
      result.failed
          ? result.failed->text + ", and mpirun ended all workers"
          : fmt::format("mpirun ended with code {}; its own message stands above", result.code);
  return result;
}

}  // namespace

std::vector<std::string> mpirun_command(const LaunchOptions& options) {
  const fs::path mpirun = find_program("mpirun");
  if (mpirun.empty()) {
    fail(
        "cannot start {} workers: there is no mpirun on the PATH (Debian, Ubuntu: apt-get install "
        "openmpi-bin)",
        options.workers);
  }
  std::vector<std::string> command{mpirun.string(),   "-n",        std::to_string(options.workers),
                                   "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) command.emplace_back("--allow-run-as-root");
  // Without either, mpirun stops before it sees that all workers are here.
  if (find_program("ssh").empty() && find_program("rsh").empty())
    command.insert(command.end(), {"--mca", "plm", "isolated"});
  if (options.prefix_lines) command.emplace_back("--tag-output");
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

void tell_launcher(int worker, int code) noexcept {
  const char* path = std::getenv(kNotebook);
  if (path == nullptr) return;
  const Descriptor notebook(::open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
  std::array<char, 64> note{};
  const int size = std::snprintf(note.data(), note.size(), "%d %d\n", worker, code);
  (void)!::write(notebook.fd, note.data(), static_cast<size_t>(size));
}

LaunchResult run_workers(const LaunchOptions& options) {
  check_can_launch(options);
  auto command = mpirun_command(options);
  const Descriptor notebook(::memfd_create("ballast workers", MFD_CLOEXEC));
  command.insert(command.begin() + 1,
                 {"-x", fmt::format("{}=/proc/{}/fd/{}", kNotebook, ::getpid(), notebook.fd)});
  std::array<int, 2> out{-1, -1}, err{-1, -1};
  if ((options.prefix_lines && ::pipe2(out.data(), O_CLOEXEC) != 0) ||
      ::pipe2(err.data(), O_CLOEXEC) != 0)
    fail("cannot create a pipe: {}", std::strerror(errno));
  Descriptor out_read(out[0]), out_write(out[1]), err_read(err[0]), err_write(err[1]);
  const HeldSignals signals;
  std::fflush(nullptr);
  const pid_t mpirun = start(command, out_write.fd, err_write.fd, signals);
  out_write.close();
  err_write.close();

  MpirunOutput output;
  Relay from_stdout(out_read.fd, stdout, output), from_stderr(err_read.fd, stderr, output);
  const Stops stops = relay_until_end(mpirun, {&from_stdout, &from_stderr}, signals);
  int status = 0;
  while (::waitpid(mpirun, &status, 0) < 0 && errno == EINTR) {
  }
  return result_of(status, stops, first_note(notebook.fd), output.failure());
}

}  // namespace ballast
