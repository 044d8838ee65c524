// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/launch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/processes.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  LaunchResult result;
  std::string output, errors;
};

Outcome launch(LaunchOptions options) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.result = run_workers(options);
  outcome.output = testing::internal::GetCapturedStdout();
  outcome.errors = testing::internal::GetCapturedStderr();
  EXPECT_THAT(descendants_of(::getpid()), testing::IsEmpty()) << "something is left";
  return outcome;
}

constexpr const char* kScenario = BALLAST_BINARY_DIR "/worker_scenario";

// Three workers, of which worker 1 misbehaves; the others wait two seconds for it.
Outcome scenario(const std::string& name, const std::string& culprit = "1") {
  return launch({3, {kScenario, name, culprit, "2"}, false, 2});
}

// The environment variable for the rest of the scope.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    if (before_) {
      ::setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

TEST(Launch, WorkersThatAreWellEndWell) {
  const Outcome outcome = scenario("none");
  EXPECT_EQ(outcome.result.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.result.reason, "");
  EXPECT_FALSE(outcome.result.failed);
  for (const char* worker : {"worker 0 of 3", "worker 1 of 3", "worker 2 of 3"})
    EXPECT_THAT(outcome.output, HasSubstr(std::string(worker) + " is well"));
}

TEST(Launch, AStoppedWorkerIsNamedWithCallLayerAndSizes) {
  const Outcome outcome = scenario("stopped");
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker 1 does not answer"));
  EXPECT_THAT(outcome.errors, HasSubstr("waiting 2."));
  EXPECT_THAT(outcome.errors,
              HasSubstr("all_to_all (experts, layer 6) of float32 [12] to float32 [12] (call 2 of "
                        "all workers)"));
}

TEST(Launch, AWorkerThatIsStoppedBeforeMpiStartsIsNamed) {
  const Outcome outcome = scenario("stopped at the start");
  EXPECT_EQ(outcome.result.code, kWorkersLost) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker 0 of 3 gave up after waiting 2."));
  EXPECT_THAT(outcome.errors, HasSubstr("(the deadline) in the start of the workers\n  worker 1 is "
                                        "stopped (process "));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("worker 2 of 3"))) << "the first speaks for all";
}

TEST(Launch, WhereAllWorkersAreStoppedAtTheStartTheLauncherNamesThem) {
  const Outcome outcome = scenario("stopped at the start", "-1");
  EXPECT_EQ(outcome.result.code, kWorkersLost) << outcome.errors;
  ASSERT_TRUE(outcome.result.failed);
  EXPECT_FALSE(outcome.result.failed->told);
  EXPECT_THAT(outcome.result.reason,
              AllOf(HasSubstr("for the start of the workers"), HasSubstr("worker 0 is stopped"),
                    HasSubstr("worker 1 is stopped"), HasSubstr("worker 2 is stopped")));
}

TEST(Launch, AWorkerThatIsStoppedAfterItsEndIsNamedByTheLauncher) {
  const Outcome outcome = scenario("stopped at the end");
  EXPECT_EQ(outcome.result.code, kWorkersLost) << outcome.errors;
  EXPECT_THAT(outcome.result.reason,
              AllOf(HasSubstr("for the end of the workers"), HasSubstr("worker 1 is stopped")));
}

TEST(Launch, AStoppedMpirunEndsWithItsWorkers) {
  const Outcome outcome = scenario("mpirun stopped");
  EXPECT_EQ(outcome.result.code, kWorkersLost) << outcome.errors;
  EXPECT_THAT(outcome.errors + outcome.result.reason, HasSubstr("mpirun is stopped (process "));
}

TEST(Launch, AKilledMpirunLeavesNeitherWorkersNorFilesBehind) {
  const test::TemporaryFolder folder;
  const Environment temporary("TMPDIR", folder.path());
  const Outcome outcome = scenario("mpirun killed");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(outcome.result.code, 128 + SIGKILL) << outcome.errors;
  EXPECT_EQ(outcome.result.reason, "mpirun was ended by signal 9, and so were all workers");
}

TEST(Launch, AStoppedWorkerOfAnotherGroupIsNamedByThoseWhoWaitForItsPartner) {
  const Outcome outcome = launch({4, {kScenario, "stopped shard", "3", "2"}});
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker 0 of 4 gave up"));
  EXPECT_THAT(outcome.errors, HasSubstr("(call 1 of the replicas of shard 0)"));
  EXPECT_THAT(outcome.errors, HasSubstr("worker 2 has not come to this call"));
  EXPECT_THAT(outcome.errors, HasSubstr("worker 3, not of this group, does not answer"));
}

TEST(Launch, AWorkerThatDoesSomethingElseIsNamedWithWhatItDidLast) {
  const Outcome outcome = scenario("late");
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker 1 has not come to this call"));
  EXPECT_THAT(outcome.errors, HasSubstr("all_reduce (gradients, layer 2) of float32 [12]"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("worker 2 has not")));
}

TEST(Launch, AWorkerInAnotherCallIsNamedWithThatCall) {
  const Outcome outcome = scenario("elsewhere");
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  // Whoever gives up first sees the other side.
  EXPECT_THAT(outcome.errors, HasSubstr("made another call here: "));
}

TEST(Launch, AWorkerThatBeginsACallAndDoesNotWaitIsNamed) {
  const Outcome outcome = scenario("busy");
  // It may have sent all that the others need before: then they end in the barrier.
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("worker 1 "));
}

TEST(Launch, AKilledWorkerEndsAllAndIsNamed) {
  const Outcome outcome = scenario("killed");
  EXPECT_EQ(outcome.result.code, 128 + SIGKILL);
  ASSERT_TRUE(outcome.result.failed) << outcome.errors;
  EXPECT_EQ(outcome.result.failed->worker, 1);
  EXPECT_EQ(outcome.result.failed->signal, SIGKILL);
  EXPECT_THAT(outcome.result.reason, HasSubstr("worker 1 was ended by signal 9 (Killed)"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("mpirun noticed"))) << "our own line says it";
}

TEST(Launch, AKilledWorkerIsFoundMissingWhereMpirunDoesNotEndTheOthers) {
  const Environment go_on("OMPI_MCA_orte_enable_recovery", "1");
  const Outcome outcome = launch({3, {kScenario, "killed", "1", "120"}});  // long before that
  EXPECT_NE(outcome.result.code, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("worker 1 has ended"));
  EXPECT_THAT(outcome.errors, HasSubstr("all_to_all (experts, layer 6)"));
}

TEST(Launch, ACrashedWorkerIsNamed) {
  const Outcome outcome = scenario("crashed");
  EXPECT_EQ(outcome.result.code, 128 + SIGFPE);
  EXPECT_THAT(outcome.result.reason, HasSubstr("worker 1 was ended by signal 8"));
}

TEST(Launch, AWorkersOwnErrorIsShownAndItsCodeKept) {
  const Outcome outcome = scenario("error");
  EXPECT_EQ(outcome.result.code, 2) << outcome.errors;
  ASSERT_TRUE(outcome.result.failed);
  EXPECT_EQ(outcome.result.failed->worker, 1);
  EXPECT_EQ(outcome.result.failed->code, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("ballast: worker 1 cannot read its data\n"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("MPI_ABORT")));
}

TEST(Launch, AWorkerThatLeavesEndsAllAndIsNamed) {
  for (const char* how : {"left", "code"}) {
    const Outcome outcome = scenario(how);
    EXPECT_NE(outcome.result.code, 0) << outcome.errors;
    ASSERT_TRUE(outcome.result.failed) << outcome.errors;
    EXPECT_EQ(outcome.result.failed->worker, 1) << how;
  }
}

TEST(Launch, WorkersThatDisagreeSaySoOnce) {
  const Outcome outcome = scenario("disagree");
  EXPECT_EQ(outcome.result.code, 2);
  const std::string told = "model.width: 512 on worker 1, 256 on workers 0, 2";
  const size_t first = outcome.errors.find(told);
  ASSERT_NE(first, std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find(told, first + 1), std::string::npos) << outcome.errors;
}

TEST(Launch, LinesNameTheirWorkerOnRequest) {
  const Outcome outcome = launch({2, {kScenario, "none", "0", "20"}, true});
  EXPECT_EQ(outcome.result.code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("worker 0: worker 0 of 2 is well\n"),
                                    HasSubstr("worker 1: worker 1 of 2 is well\n")));
}

TEST(Launch, AProgramThatIsNotThereIsAnError) {
  const Outcome outcome = launch({2, {"/nowhere/ballast"}});
  EXPECT_NE(outcome.result.code, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("/nowhere/ballast"));
  EXPECT_THAT(outcome.result.reason, HasSubstr("mpirun ended with code"));
}

TEST(Launch, WithoutMpirunItSaysWhatToInstall) {
  const test::TemporaryFolder folder;
  const Environment path("PATH", folder.path());
  EXPECT_THAT(test::error_of([] { run_workers({2, {kScenario}}); }), HasSubstr("openmpi-bin"));
}

TEST(Launch, MpirunWorksWithoutSsh) {
  const test::TemporaryFolder folder;
  for (const char* name : {"mpirun", "orted"})
    std::filesystem::create_symlink(std::string("/usr/bin/") + name, folder / name);
  const Environment path("PATH", folder.path());
  const Outcome outcome = scenario("none");
  EXPECT_EQ(outcome.result.code, 0) << outcome.errors;
}

// As in a batch script of Slurm. mpirun would give the other machine its share of the workers.
TEST(Launch, AllWorkersAreHereWithinAnAllocationOfSeveralMachines) {
  std::array<char, 256> here{};
  ::gethostname(here.data(), here.size() - 1);
  const Environment job("SLURM_JOBID", "7"), tasks("SLURM_TASKS_PER_NODE", "1(x2)"),
      machines("SLURM_NODELIST", std::string(here.data()) + ",elsewhere.invalid");
  const Outcome outcome = scenario("none");
  EXPECT_EQ(outcome.result.code, 0) << outcome.result.reason << outcome.errors;
}

TEST(Launch, BadOptionsAreRefused) {
  EXPECT_THAT(test::error_of([] { run_workers({0, {kScenario}}); }), HasSubstr("at least 1"));
  EXPECT_THAT(test::error_of([] { run_workers({2, {}}); }), HasSubstr("no program"));
  const Environment started("OMPI_COMM_WORLD_SIZE", "4");
  EXPECT_THAT(test::error_of([] { run_workers({2, {kScenario}}); }), HasSubstr("one of 4 workers"));
}

TEST(Launch, WorkersWhoseMpiSeesThemAloneAreRefused) {
  // As under an srun or mpirun of another MPI: each would do the whole job.
  const Environment started("SLURM_STEP_NUM_TASKS", "4");
  testing::internal::CaptureStderr();
  const int status = std::system((std::string(kScenario) + " none 0 5").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("4 workers were started, but MPI sees this one alone"));
}

// A child that launches the scenario, and a pipe with all that it prints.
class Launcher {
 public:
  explicit Launcher(const std::string& name) {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::dup2(pipe[1], STDERR_FILENO);
      ::setenv(kMark, std::to_string(::getpid()).c_str(), 1);
      ::_exit(run_workers({2, {kScenario, name, "-1", "30"}}).code);
    }
    ::close(pipe[1]);
    from_ = ::fdopen(pipe[0], "r");
  }
  ~Launcher() { std::fclose(from_); }

  std::string read_line() {
    std::array<char, 4096> line{};
    return std::fgets(line.data(), line.size(), from_) == nullptr ? "" : line.data();
  }
  std::string read_all() {
    std::string all;
    for (std::string line = read_line(); !line.empty(); line = read_line()) all += line;
    return all;
  }
  void signal(int number) const { ::kill(pid_, number); }
  // Processes that it has started, also those that they have.
  int descendants() const {
    const std::string mark = std::string(kMark) + "=" + std::to_string(pid_) + '\0';
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment{std::istreambuf_iterator<char>(file), {}};
      count += environment.find(mark) != std::string::npos;
    }
    return count;
  }
  int wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  static constexpr const char* kMark = "BALLAST_TEST_LAUNCHER";  // in the environment of all

  pid_t pid_ = -1;
  std::FILE* from_ = nullptr;
};

TEST(Launch, AStopSignalLetsWorkersFinish) {
  for (const int number : {SIGTERM, SIGUSR1}) {
    Launcher launcher("stop request");
    EXPECT_EQ(launcher.read_line(), "ready\n");
    EXPECT_EQ(launcher.read_line(), "ready\n");
    launcher.signal(number);
    EXPECT_THAT(launcher.read_all(),
                AllOf(HasSubstr("worker 0 of 2 is well"), HasSubstr("worker 1 of 2 is well")));
    EXPECT_EQ(launcher.wait(), 0) << number;
  }
}

// As `timeout` sends it: to the process, and to its group.
TEST(Launch, TwoSignalsAtOnceLetWorkersFinish) {
  Launcher launcher("stop request");
  EXPECT_EQ(launcher.read_line(), "ready\n");
  EXPECT_EQ(launcher.read_line(), "ready\n");
  launcher.signal(SIGTERM);
  ::usleep(10000);  // each is seen
  launcher.signal(SIGTERM);
  EXPECT_THAT(launcher.read_all(),
              AllOf(HasSubstr("worker 0 of 2 is well"), HasSubstr("worker 1 of 2 is well")));
  EXPECT_EQ(launcher.wait(), 0);
}

TEST(Launch, WorkersEndWhenTheLauncherIsKilled) {
  Launcher launcher("stop request");
  EXPECT_EQ(launcher.read_line(), "ready\n");
  EXPECT_EQ(launcher.read_line(), "ready\n");
  EXPECT_GE(launcher.descendants(), 3);  // mpirun and its workers
  launcher.signal(SIGKILL);
  launcher.wait();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (launcher.descendants() > 0 && std::chrono::steady_clock::now() < patience) ::usleep(10000);
  EXPECT_EQ(launcher.descendants(), 0);
  EXPECT_THAT(launcher.read_all(), Not(HasSubstr("is well")));
}

}  // namespace
}  // namespace ballast::comm
