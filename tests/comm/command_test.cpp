// SPDX-License-Identifier: Apache-2.0
// How a command of the program starts its workers, ends, and starts again (cli/workers.h).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ballast::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kCommand = BALLAST_BINARY_DIR "/worker_command";

struct Outcome {
  int code = -1;
  std::string output, errors;
};

// `arguments` as a shell reads them; `before`: what stands before the command.
Outcome run(const std::string& arguments, const std::string& before = "") {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  const int status = std::system((before + " " + kCommand + " " + arguments).c_str());
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.output = testing::internal::GetCapturedStdout();
  outcome.errors = testing::internal::GetCapturedStderr();
  return outcome;
}

constexpr const char* kMpirun = "mpirun --allow-run-as-root --oversubscribe";

TEST(WorkerCommand, AloneItIsAWorldOfOne) {
  for (const char* how : {"", "--workers 1"}) {
    const Outcome outcome = run(how);
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_EQ(outcome.output, "run \"\", words [], sum 1\n");
    EXPECT_EQ(outcome.errors, "1 workers, resume never\n");
  }
}

TEST(WorkerCommand, StartedWorkersLookLikeOneProgram) {
  for (const char* how : {"--workers 3", "--workers=3"}) {
    const Outcome outcome = run(how);
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_EQ(outcome.output, "run \"chosen by the launcher\", words [], sum 9\n");
    EXPECT_EQ(outcome.errors, "3 workers, resume never\n");
  }
}

TEST(WorkerCommand, MpirunStartsWorkersToo) {
  for (const char* number : {" -n 1", " -n 2"}) {
    const Outcome outcome = run("--run here", kMpirun + std::string(number));
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("run \"here\", words []"));
  }
}

TEST(WorkerCommand, WorkersGetTheCommandLineWithoutTheOptionsOfStarting) {
  const Outcome outcome = run(
      "--run 'a folder' --workers 2 'one word' --max-restarts=1 --prefix-lines two -- --workers");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "worker 0: run \"a folder\", words [one word; two; --workers], sum 4\n");
  EXPECT_EQ(outcome.errors, "worker 0: 2 workers, resume never\n");
}

TEST(WorkerCommand, AWorkersMistakeIsToldWithItsNumberAndNotTriedAgain) {
  const Outcome outcome = run("--workers 3 --max-restarts 2 --trouble mistake --culprit 2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors,
            "3 workers, resume never\n"
            "ballast: worker 2: the data of worker 2 is not there\n");
  const Outcome alone = run("--trouble mistake");
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.errors, HasSubstr("\nballast: the data of worker 0 is not there\n"));
}

TEST(WorkerCommand, AMistakeThatAllWorkersFindIsToldByTheFirst) {
  const Outcome outcome = run("--workers 3 --trouble 'mistake of all'");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "3 workers, resume never\nballast: the data is not there\n");
}

TEST(WorkerCommand, WhatAllWorkersThrowIsToldOnceAndNotTriedAgain) {
  for (int time = 0; time < 5; ++time) {
    const Outcome outcome = run("--workers 4 --max-restarts 2 --trouble disagreement --culprit 3");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.errors,
              "4 workers, resume never\n"
              "ballast: the workers do not agree (start); all must be started alike:\n"
              "  parity: odd on worker 3, even on workers 0, 1, 2\n");
  }
}

TEST(WorkerCommand, ACodeOfTheCommandIsKeptAndNotTriedAgain) {
  const Outcome outcome = run("--workers 2 --max-restarts 2 --trouble code");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.output, HasSubstr("sum 4"));
  EXPECT_EQ(outcome.errors, "2 workers, resume never\n");
}

TEST(WorkerCommand, AKilledWorkerIsToldAndWithoutRestartsTheEnd) {
  const Outcome outcome = run("--workers 3 --trouble killed --culprit 1");
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("ballast: worker 1 was ended by signal 9 (Killed)"),
                                    Not(HasSubstr("starting again"))));
}

TEST(WorkerCommand, AfterAKilledWorkerItGoesOnFromTheCheckpoint) {
  const Outcome outcome =
      run("--workers 3 --max-restarts 2 --trouble killed --culprit 1 --resume never");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "run \"chosen by the launcher\", words [], sum 9\n");
  EXPECT_THAT(outcome.errors,
              testing::MatchesRegex("3 workers, resume never\n"
                                    "ballast: worker 1 was ended by signal 9 [(]Killed[)] on .*, "
                                    "and mpirun ended all workers; starting again [(]1 of 2[)]\n"
                                    "3 workers, resume auto\n"));
}

TEST(WorkerCommand, AfterAWorkerThatDoesNotAnswerItGoesOnFromTheCheckpoint) {
  const Outcome outcome =
      run("--workers 2 --max-restarts 1 --trouble stopped --culprit 1 --deadline 2s");
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_THAT(
      outcome.errors,
      AllOf(HasSubstr("ballast: worker 0 of 2 gave up after waiting 2."),
            HasSubstr("all_reduce (gradients, layer 2)"), HasSubstr("worker 1 does not answer"),
            HasSubstr("starting again (1 of 1)\n2 workers, resume auto\n")));
  EXPECT_THAT(outcome.output, HasSubstr("sum 4"));
}

TEST(WorkerCommand, ADeadlineHasACodeOfItsOwn) {
  const Outcome outcome = run("--workers 2 --trouble stopped --culprit 1 --deadline 1s");
  EXPECT_EQ(outcome.code, 75) << outcome.errors;
}

TEST(WorkerCommand, AFaultOfOursIsTriedAgainAsOftenAsAllowed) {
  const Outcome outcome = run("--workers 2 --max-restarts 2 --trouble 'fault always' --culprit 1");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("worker 1: internal error: this cannot be"),
                                    HasSubstr("(1 of 2)"), HasSubstr("(2 of 2)")));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("3 of 2")));
}

TEST(WorkerCommand, WhatCannotBeIsRefused) {
  for (const char* number : {"0", "-2", "1.5", "many", "100000"}) {
    const Outcome outcome = run("--workers " + std::string(number));
    EXPECT_NE(outcome.code, 0) << number;
    EXPECT_THAT(outcome.output + outcome.errors, HasSubstr("--workers"));
  }
  for (const char* more : {"--max-restarts 1", "--prefix-lines"}) {
    const Outcome outcome = run(more);
    EXPECT_NE(outcome.code, 0) << more;
    EXPECT_THAT(outcome.output + outcome.errors, HasSubstr("requires --workers"));
  }
  const Outcome no_time = run("--deadline 0s");
  EXPECT_EQ(no_time.code, 2);
  EXPECT_THAT(no_time.errors, HasSubstr("--deadline"));
}

TEST(WorkerCommand, NcclWithoutGpusIsRefusedOnceForAll) {
  const Outcome outcome = run("--workers 2 --engine nccl");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors,
            "ballast: NCCL was asked for, but workers 0, 1 compute on the CPU: give each worker a "
            "GPU (training.device cuda)\n");
  EXPECT_NE(run("--engine smoke").code, 0);
}

TEST(WorkerCommand, TheNumberOfWorkersIsGivenOnce) {
  const Outcome outcome = run("--workers 2", kMpirun + std::string(" -n 2"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("--workers 2: this is one of 2 workers"));
  // A shell within a step of Slurm is no worker.
  EXPECT_EQ(run("--workers 2", "SLURM_STEP_NUM_TASKS=1").code, 0);
}

TEST(WorkerCommand, WithoutTheMpiPluginOneWorkerRunsAndSeveralAreRefused) {
  const test::TemporaryFolder folder;  // a program that was built where there is no mpi.h
  std::filesystem::copy(BALLAST_BINARY_DIR "/libballast_comm.so", folder.path());
  const std::string without = "LD_LIBRARY_PATH=" + folder.path().string();
  EXPECT_EQ(run("--workers 1", without).code, 0);
  const Outcome launched = run("--workers 2", without);
  EXPECT_EQ(launched.code, 2);
  EXPECT_THAT(launched.errors,
              AllOf(HasSubstr("there is no " + (folder / "libballast_mpi.so").string()),
                    HasSubstr("libopenmpi-dev")));
  const Outcome started = run("", without + " " + kMpirun + " -n 2");
  EXPECT_EQ(started.code, 2);
  EXPECT_THAT(started.errors, AllOf(HasSubstr("cannot work with several workers: there is no "),
                                    HasSubstr("libopenmpi-dev")));
}

TEST(WorkerCommand, WithoutMpirunOneWorkerRunsAndSeveralAreRefused) {
  EXPECT_EQ(run("--workers 1", "PATH=/nowhere").code, 0);
  const Outcome outcome = run("--workers 2", "PATH=/nowhere");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("apt-get install openmpi-bin"));
}

// The command in the background, and a pipe with all that it prints.
class Running {
 public:
  explicit Running(const std::string& trouble) {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid_ = test::start_child([&] {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::dup2(pipe[1], STDERR_FILENO);
      return ::execl(kCommand, kCommand, "--workers", "3", "--max-restarts", "1", "--trouble",
                     trouble.c_str(), nullptr);
    });
    ::close(pipe[1]);
    from_ = ::fdopen(pipe[0], "r");
  }
  ~Running() { std::fclose(from_); }

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
  int wait() const { return test::wait_for_child(pid_); }

 private:
  pid_t pid_ = -1;
  std::FILE* from_ = nullptr;
};

TEST(WorkerCommand, AskedToStopItStopsOnceForAll) {
  Running command("stop");
  std::string before;
  for (int ready = 0; ready < 3;) {
    const std::string line = command.read_line();
    ASSERT_NE(line, "") << before;
    before += line;
    ready += line == "ready\n";
  }
  command.signal(SIGINT);
  EXPECT_EQ(command.read_all(),
            "stopping as soon as it is safe; a second signal ends it at once\n"
            "run \"chosen by the launcher\", words [], sum 9\n");
  EXPECT_EQ(command.wait(), 0);
}

TEST(WorkerCommand, AskedToStopBeforeItListensItEndsAndDoesNotStartAgain) {
  Running command("deaf");
  EXPECT_EQ(command.read_line(), "3 workers, resume never\n");
  command.signal(SIGTERM);
  EXPECT_EQ(command.read_all(),
            "stopping as soon as it is safe; a second signal ends it at once\n");
  EXPECT_EQ(command.wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ballast::comm
