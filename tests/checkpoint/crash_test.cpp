// SPDX-License-Identifier: Apache-2.0
// Saving while the disk fills up, and while the process is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/checkpoint/checkpoint_writer.h"
#include "ballast/checkpoint/retention.h"
#include "ballast/checkpoint/step_folders.h"
#include "ballast/system/error.h"
#include "tests/checkpoint/sample_checkpoint.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ballast::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr size_t kElements = 200'000;  // 0.8 MB a tensor, 5.6 MB a checkpoint

// Saves a small checkpoint (step 1), then tries one that does not fit (step 2); writes the error
// message to `report`. Returns 0 if the first is whole and nothing is left of the second.
int fill_the_disk(const fs::path& checkpoints, const fs::path& report) {
  test::save_sample(checkpoints, 1, 10);
  try {
    test::save_sample(checkpoints, 2, kElements);
    return 1;
  } catch (const UserError& error) {
    std::ofstream(report) << error.what();
  }
  if (std::distance(fs::directory_iterator(checkpoints), fs::directory_iterator()) != 1) return 2;
  const NewestValid newest = find_newest_valid(checkpoints);
  return newest.checkpoint && newest.checkpoint->manifest().step == 1 ? 0 : 3;
}

TEST(FullDisk, LeavesEarlierCheckpointsAndNothingElse) {
  const test::TemporaryFolder run;
  EXPECT_EQ(test::run_in_child([&] {
              test::limit_file_size(1'000'000);
              return fill_the_disk(run / "checkpoints", run / "report");
            }),
            0);
  EXPECT_THAT(read_text(run / "report"),
              AllOf(HasSubstr("checkpoint of step 2"), HasSubstr("shared.safetensors"),
                    HasSubstr("Earlier checkpoints are untouched")));
}

TEST(FullDisk, SaysHowMuchIsMissingOnARealOne) {
  const test::TemporaryFolder run, disk;
  constexpr int kMayNotMount = 50;
  const int code = test::run_in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return kMayNotMount;
    }
    return fill_the_disk(disk / "checkpoints", run / "report");
  });
  if (code == kMayNotMount) GTEST_SKIP() << "mounting a small disk needs root";
  EXPECT_EQ(code, 0);
  EXPECT_THAT(read_text(run / "report"),
              AllOf(HasSubstr("No space left on device"), HasSubstr("free some space"),
                    HasSubstr("2.40 MB needed")));
}

// Saves checkpoints for ever, every fourth one twice, noting each step in `committed` once its
// commit has returned.
int save_for_ever(const fs::path& checkpoints, const fs::path& committed, uint64_t step) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;; ++step) {
    test::save_sample(checkpoints, step, 20'000);
    if (step % 4 == 0) test::save_sample(checkpoints, step, 20'000);
    write_text_atomically(committed, std::to_string(step));
    delete_old_checkpoints(checkpoints, {.keep_last = 2, .keep_every = 10});
  }
}

TEST(Kill, LeavesTheOldStateOrTheNewOne) {
  const test::TemporaryFolder run;
  const auto checkpoints = run / "checkpoints";
  const auto seed = static_cast<uint64_t>(::getpid());
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomStream random(seed, "kill");
  uint64_t step = 1, half_written = 0;
  // At least 25 kills; more, and later ones, on a machine too slow to save anything in that time.
  for (uint64_t round = 1; round <= 25 || step < 20 || half_written < 3; ++round) {
    ASSERT_LT(round, 1000U) << "the children hardly save anything";
    const pid_t child =
        test::start_child([&] { return save_for_ever(checkpoints, run / "committed", step); });
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(5'000 * (10 + round))));
    ::kill(child, SIGKILL);
    ASSERT_EQ(test::wait_for_child(child), -SIGKILL);

    for (const StepFolder& folder : list_step_folders(checkpoints)) {
      EXPECT_NO_THROW(Checkpoint(folder.path).verify()) << folder.path;
    }
    const NewestValid newest = find_newest_valid(checkpoints);
    if (fs::exists(run / "committed")) {
      const uint64_t committed = std::stoull(read_text(run / "committed"));
      ASSERT_TRUE(newest.checkpoint);
      EXPECT_GE(newest.checkpoint->manifest().step, committed);
      step = newest.checkpoint->manifest().step + 1;
    }
    half_written += remove_leftovers(checkpoints).size();
    EXPECT_TRUE(list_step_folders(checkpoints, kTemporarySuffix).empty());
  }
}

}  // namespace
}  // namespace ballast::checkpoint
