// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
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
#include <utility>

#include "ballast/comm/custody.h"
#include "ballast/comm/hosts.h"
#include "ballast/comm/job_folders.h"
#include "ballast/comm/job_watch.h"
#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/remote_daemons.h"
#include "ballast/comm/world.h"
#include "ballast/system/argument_pointers.h"
#include "ballast/system/console.h"
#include "ballast/system/error.h"
#include "ballast/system/stop_signal.h"

namespace ballast::comm {
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
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
    on_child_ = std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, no end can be waited for
    fd_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~HeldSignals() {
    while (take() != 0) {  // what comes when all have ended asks for nothing more
    }
    ::close(fd_);
    std::signal(SIGCHLD, on_child_);
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
  void (*on_child_)(int) = SIG_DFL;
  int fd_ = -1;
};

// Passes on what comes through a pipe: line by line where `output` is to look at it. What cannot be
// written is lost, and stdout knows (std::ferror).
class Relay {
 public:
  enum class To { kStdout, kConsole };
  Relay(int fd, To to, MpirunOutput* output, Notebook& notebook)
      : fd_(fd), to_(to), output_(output), notebook_(notebook) {}

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
    if (output_ == nullptr) return write({piece.data(), static_cast<size_t>(got)});
    rest_.append(piece.data(), static_cast<size_t>(got));
    size_t from = 0;
    for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1)
      show(rest_.substr(from, end - from));
    rest_.erase(0, from);
  }

 private:
  void show(const std::string& line) {
    if (notebook_.take_line(line)) return;
    const auto shown = output_->take(line);
    if (!shown) return;
    to_ == To::kConsole ? relay_line(*shown) : write(*shown + "\n");
  }
  static void write(std::string_view text) {
    clear_bar();  // both may be the same terminal
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  int fd_;
  To to_;
  MpirunOutput* output_;
  Notebook& notebook_;
  std::string rest_;
};

// How mpirun ended, and which signal asked this process to stop last (0: none did).
struct Ended {
  int status = 0, last_signal = 0;
};

// Passes on output and signals until mpirun has ended.
Ended relay_until_end(pid_t mpirun, std::array<Relay*, 2> relays, const HeldSignals& signals,
                      MpirunOutput& output, RemoteDaemons& daemons, JobWatch& watch) {
  constexpr int kLookMilliseconds = 250, kEndMilliseconds = 5;
  Ended ended;
  StopRequests requests;
  bool lost = false;
  for (pid_t gone = 0; gone != mpirun;) {
    std::array<pollfd, 3> events{{{relays[0]->fd(), POLLIN, 0},  // one of -1 is passed over
                                  {relays[1]->fd(), POLLIN, 0},
                                  {signals.fd(), POLLIN, 0}}};
    const bool silent = relays[0]->fd() < 0 && relays[1]->fd() < 0;  // it is about to end
    if (::poll(events.data(), events.size(), silent ? kEndMilliseconds : kLookMilliseconds) > 0) {
      for (size_t i = 0; i < relays.size(); ++i) {
        if (events[i].revents != 0) relays[i]->read();
      }
      if (const int signal = events[2].revents != 0 ? signals.take() : 0;
          signal != 0 && requests.add()) {
        ended.last_signal = signal;
        watch.stop();
      }
    }
    watch.look();
    if (output.has_lost_machine() && !std::exchange(lost, true)) {
      watch.lose_machine();
      output.name_lost_machines(daemons.gone(), watch.all_have_come());
    } else if (!lost) {
      daemons.look();
    }
    gone = ::waitpid(mpirun, &ended.status, WNOHANG);
  }
  return ended;
}

void relay_the_rest(std::array<Relay*, 2> relays) {
  for (Relay* relay : relays) {
    while (relay->fd() >= 0) relay->read();
  }
}

LaunchResult failed_by(int code, WorkerFailure failure, const char* what_then) {
  LaunchResult result;
  result.code = code;
  result.reason = failure.text + what_then;
  result.failed = std::move(failure);
  return result;
}

// `note` is what a worker wrote, `seen` what mpirun's own messages say.
LaunchResult result_of(const Ended& ended, const JobWatch& watch, std::optional<WorkerFailure> note,
                       std::optional<WorkerFailure> seen) {
  LaunchResult result;
  const int mpiruns = WIFSIGNALED(ended.status) ? WTERMSIG(ended.status) : 0;
  const int code = WEXITSTATUS(ended.status), workers = seen ? seen->signal : 0;
  // By the second request, or by the first, before anyone could listen to it.
  if (ended.status != 0 &&
      (watch.stops() > 1 || (watch.stops() == 1 && (mpiruns == SIGUSR1 || workers == SIGUSR1)))) {
    result.code = 128 + ended.last_signal;
    result.reason = fmt::format("the workers were ended by signal {}", ended.last_signal);
  } else if (watch.failure()) {
    result = failed_by(kWorkersLost, *watch.failure(), "\n  all workers were ended");
  } else if (note && (mpiruns != 0 || code == 0 || watch.has_ended_it())) {
    // An mpirun that was told to go on without a worker gives 0.
    result = failed_by(note->code, *note, ", and all workers were ended");
  } else if (seen && seen->code == kWorkersLost &&
             (code != 0 || mpiruns != 0 || watch.has_ended_it())) {
    // mpirun's own code says nothing of it.
    result = failed_by(note ? note->code : kWorkersLost, note ? *note : *seen,
                       ", and all workers were ended");
  } else if (mpiruns != 0) {
    result.code = 128 + mpiruns;
    result.reason = fmt::format("mpirun was ended by signal {}, and so were all workers", mpiruns);
  } else if (code != 0 && (note || seen)) {
    result = failed_by(code, note ? *note : *seen, ", and mpirun ended all workers");
  } else if (code != 0) {
    result.code = code;
    result.reason = fmt::format("mpirun ended with code {}; its own message stands above", code);
  }
  result.stops = watch.stops();
  return result;
}

constexpr std::string_view kPreload = "LD_PRELOAD=";

// What people have the dynamic linker load first; workers get this alone.
std::string preloaded_by_all() {
  const char* others = std::getenv("LD_PRELOAD");
  return std::string(kPreload) + (others == nullptr ? "" : others);
}

// mpirun would listen on all networks: a library of ours lets it listen on this machine alone,
// unless other machines are to reach it.
std::vector<std::string> environment_of_mpirun(Reach reach) {
  const bool is_local = reach != Reach::kNetwork;
  std::vector<std::string> variables = environment_without(
      [&](std::string_view variable) { return is_local && variable.starts_with(kPreload); });
  if (!is_local) return variables;
  const fs::path own = mpi_plugin_path().replace_filename("libballast_loopback.so");
  const bool usable = fs::exists(own) && own.native().find_first_of(" :") == std::string::npos;
  variables.push_back(fmt::format("{}:{}", preloaded_by_all(), usable ? own.string() : ""));
  return variables;
}

// mpirun, with the writing ends of pipes as its stdout and stderr.
pid_t start(std::vector<std::string> command, int out, int err, const HeldSignals& signals,
            const Notebook& notebook) {
  std::vector<std::string> variables = environment_of_mpirun(notebook.reach());
  const std::vector<char*> words = argument_pointers(command),
                           environment = argument_pointers(variables);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail("cannot start {}: {}", command.front(), std::strerror(errno));
  if (child > 0) return child;
  // From here to execve only what a signal handler may do: the parent may have had threads.
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which asks workers to stop before it ends them
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  notebook.try_out();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  pthread_sigmask(SIG_SETMASK, &signals.before(), nullptr);
  ::execve(words[0], words.data(), environment.data());
  ::_exit(127);
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
  const std::string workers = std::to_string(options.workers);
  // Named, or they would go to all machines of an allocation (Slurm) in which this one is.
  const std::string hosts = mpirun_hosts(options.hosts, options.workers);
  std::vector<std::string> command{mpirun.string(),   "-n",        workers, "--host", hosts,
                                   "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) command.emplace_back("--allow-run-as-root");
  // Without either, mpirun stops before it sees that all workers are here.
  if (options.hosts.empty() && find_program("ssh").empty() && find_program("rsh").empty())
    command.insert(command.end(), {"--mca", "plm", "isolated"});
  if (!options.hosts.empty()) {
    // Otherwise mpirun cuts names at their first dot.
    command.insert(command.end(), {"--mca", "orte_keep_fqdn_hostnames", "1"});
    // An ssh that asks something would wait for a terminal that it cannot have.
    if (std::getenv("OMPI_MCA_plm_rsh_args") == nullptr &&
        std::getenv("OMPI_MCA_plm_rsh_agent") == nullptr)
      command.insert(command.end(), {"--mca", "plm_rsh_args", "-o BatchMode=yes"});
  }
  if (options.prefix_lines) command.emplace_back("--tag-output");
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

LaunchResult run_workers(const LaunchOptions& options) {
  check_can_launch(options);
  auto command = mpirun_command(options);
  Notebook notebook(options.hosts.empty() ? Reach::kThisMachine : Reach::kNetwork);
  command.insert(command.begin() + 1, {"-x", console_variable()});
  for (const std::string& variable : notebook.variables())
    command.insert(command.begin() + 1, {"-x", variable});
  std::optional<JobFolders> folders;  // of this machine alone
  if (options.hosts.empty()) {
    const auto kept_in = folders.emplace(options.workers).mpirun_options();
    command.insert(command.begin() + 1, kept_in.begin(), kept_in.end());
    command.insert(command.begin() + 1, {"-x", preloaded_by_all()});
  }
  std::array<int, 2> out{-1, -1}, err{-1, -1};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0)
    fail("cannot create a pipe: {}", std::strerror(errno));
  Descriptor out_read(out[0]), out_write(out[1]), err_read(err[0]), err_write(err[1]);
  const HeldSignals signals;
  const Custody custody;
  std::fflush(nullptr);
  const pid_t mpirun = start(command, out_write.fd, err_write.fd, signals, notebook);
  out_write.close();
  err_write.close();

  MpirunOutput output;
  // mpirun would lose what it cannot write without a word: stdout goes through this process, too.
  Relay from_stdout(out_read.fd, Relay::To::kStdout, options.prefix_lines ? &output : nullptr,
                    notebook);
  Relay from_stderr(err_read.fd, Relay::To::kConsole, &output, notebook);
  const std::array<Relay*, 2> relays{&from_stdout, &from_stderr};
  RemoteDaemons daemons(mpirun, options.hosts);
  JobWatch watch(mpirun, options.workers, options.deadline_seconds, notebook, custody);
  const Ended ended = relay_until_end(mpirun, relays, signals, output, daemons, watch);
  custody.end_all();
  relay_the_rest(relays);
  clear_bar();  // of a worker that could not do so itself
  notebook.read();
  LaunchResult result = result_of(ended, watch, notebook.failure(), output.failure());
  result.arrived = notebook.all_arrived(options.workers);
  return result;
}

}  // namespace ballast::comm
