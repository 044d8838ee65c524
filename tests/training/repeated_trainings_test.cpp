// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "ballast/system/console.h"
#include "ballast/training/train.h"
#include "tests/support/lone_worker.h"
#include "tests/support/temporary_folder.h"
#include "tests/training/counting_runs.h"

namespace ballast::training {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// What a process has of the system.
struct Holdings {
  double resident = 0;  // bytes
  int64_t files = 0, threads = 0;
  int64_t shared = 0;  // mappings of shared memory
};

int64_t entries_of(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

Holdings holdings() {
  Holdings found{.files = entries_of("/proc/self/fd"), .threads = entries_of("/proc/self/task")};
  std::ifstream status("/proc/self/status"), maps("/proc/self/maps");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:" && status >> found.resident) found.resident *= 1024;
  }
  for (std::string line; std::getline(maps, line);)
    found.shared += line.find("/dev/shm/") != std::string::npos;
  return found;
}

// In words, what there is more of. Freed memory that the heap keeps comes and goes by a little.
std::vector<std::string> growth(const Holdings& before, const Holdings& after) {
  std::vector<std::string> found;
  const auto compare = [&](const char* what, auto had, auto has, double bound) {
    if (static_cast<double>(has) > static_cast<double>(had) * bound)
      found.push_back(fmt::format("{}: {} before, {} after", what, had, has));
  };
  compare("memory", before.resident, after.resident, 1.02);
  compare("files", before.files, after.files, 1);
  compare("threads", before.threads, after.threads, 1);
  compare("shared memory", before.shared, after.shared, 1);
  return found;
}

std::unique_ptr<Trainer> trained(int64_t steps) {
  config::Config config;
  config.model = {.vocabulary = 24, .width = 16, .layers = 1, .heads = 2, .context = 8};
  config.training.batch = 2;
  config.training.steps = 40;  // batches are still being read when it goes
  config.experts.layers = 1;
  config.experts.count = 2;
  config.experts.sublayers = 1;
  config.experts.groups = 1;
  auto trainer = std::make_unique<Trainer>(config, model::ComputePlace{},
                                           test::counting_source(500, 24), test::lone_worker());
  test::losses(*trainer, steps);
  return trainer;
}

// What a program has more of after `rounds` rounds than after the first `warm_up` of them.
std::vector<std::string> growth_over(int64_t warm_up, int64_t rounds,
                                     const std::function<void()>& round) {
  for (int64_t i = 0; i < warm_up; ++i) round();
  const Holdings before = holdings();
  for (int64_t i = warm_up; i < rounds; ++i) round();
  const Holdings after = holdings();
  fmt::print("{} rounds: {:.1f} MB after {}, {:.1f} MB at the end; {} files, {} threads\n", rounds,
             before.resident / 1e6, warm_up, after.resident / 1e6, after.files, after.threads);
  return growth(before, after);
}

TEST(RepeatedTrainings, LeaveNothingBehind) {
  // AddressSanitizer keeps 256 MB of what was freed, and looks for leaks itself.
#ifdef __SANITIZE_ADDRESS__
  const auto expected = Each(HasSubstr("memory: "));
#else
  const auto expected = IsEmpty();
#endif
  EXPECT_THAT(growth_over(30, 90, [] { trained(2); }), expected);
}

TEST(RepeatedTrainings, WhatStaysBehindIsFound) {
  std::list<std::unique_ptr<Trainer>> kept;
  EXPECT_THAT(growth_over(3, 6, [&] { kept.push_back(trained(2)); }),
              Contains(HasSubstr("threads")));
  std::list<std::string> texts;
  EXPECT_THAT(growth_over(1, 2, [&] { texts.emplace_back(64 << 20, 'x'); }),
              Contains(HasSubstr("memory")));
  std::list<std::ifstream> files;
  EXPECT_THAT(growth_over(1, 2, [&] { files.emplace_back("/proc/self/status"); }),
              Contains(HasSubstr("files")));
}

// A run as the program makes one: data, validations, samples, checkpoints, the record.
void run_once() {
  const test::TemporaryFolder folder;
  const auto world = comm::open_world({.kind = comm::WorldKind::kSingle});
  TrainRequest request;
  request.run = folder / "run";
  request.overrides = {{"model.width", "16"},
                       {"model.layers", "2"},
                       {"model.heads", "2"},
                       {"model.context", "16"},
                       {"experts.layers", "1"},
                       {"experts.count", "4"},
                       {"experts.groups", "1"},
                       {"training.batch", "4"},
                       {"optimizer.warmup_steps", "1"},
                       {"training.steps", "2"},
                       {"training.threads", "1"},
                       {"training.device", "cpu"},
                       {"training.validate_every", "1"},
                       {"training.validate_batches", "1"},
                       {"training.last_validate_batches", "1"},
                       {"training.sample_every", "1"},
                       {"training.sample_tokens", "4"},
                       {"checkpoint.every", "1"},
                       {"data.builtin_bytes", "60000"}};
  const TrainSummary summary = train(request, *world);
  world->close();
  ASSERT_EQ(summary.step, 2);
  ASSERT_TRUE(fs::exists(summary.checkpoint));
}

class Quiet {
 public:
  Quiet() { set_console({.quiet = true}); }
  ~Quiet() { set_console({}); }
};

TEST(RepeatedRuns, LeaveNothingBehind) {
  const Quiet quiet;
  EXPECT_THAT(growth_over(4, 12, run_once), IsEmpty());
}

TEST(RepeatedTrainingsLong, TenThousandLeaveNothingBehind) {
  EXPECT_THAT(growth_over(200, 10'000, [] { trained(2); }), IsEmpty());
}

TEST(RepeatedRunsLong, FiveHundredLeaveNothingBehind) {
  const Quiet quiet;
  EXPECT_THAT(growth_over(20, 500, run_once), IsEmpty());
}

}  // namespace
}  // namespace ballast::training
