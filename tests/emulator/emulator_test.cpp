// SPDX-License-Identifier: Apache-2.0
// The emulated GPU itself: that it finds the faults it is there for, and does what CUDA's words
// say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "tests/emulator/cuda_on_cpu.h"

namespace ballast::emulator {
namespace {

using testing::HasSubstr;

constexpr unsigned kAll = 0xffffffffU;

// What run() says of a kernel of one block.
std::string fault_of(unsigned threads, const std::function<void()>& kernel) {
  try {
    run({.grid = 1, .block = threads}, kernel);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

unsigned thread() { return threadIdx.x; }

// A barrier that some threads pass by.
TEST(Emulator, ThreadsThatWaitWithoutEndAreFound) {
  set({});
  const auto forget_some = [] {
    if (thread() < 32) __syncthreads();
    __syncwarp();
    if (thread() >= 32) meet_some(1, 64);
  };
  EXPECT_THAT(fault_of(64, forget_some),
              HasSubstr("wait without end; 32 wait at __syncthreads; 32 wait at bar.sync"));
  EXPECT_EQ(fault_of(64, [] { __syncthreads(); }), "none");
}

// Blocks that wait at a counter for one that never comes.
TEST(Emulator, ThreadsThatSpinWithoutEndAreFound) {
  set({});
  unsigned counter = 0;
  EXPECT_THAT(fault_of(1, [&] { meet_at(&counter, 2); }), HasSubstr("spin without end"));
}

// Lanes that shuffle while others of their mask do something else, or have ended.
TEST(Emulator, DivergentShufflesAreRefused) {
  set({});
  const auto differ = [] {
    if (thread() % 2 == 0) {
      __shfl_sync(kAll, 1, 0);
    } else {
      __ballot_sync(kAll, 1);
    }
  };
  EXPECT_THAT(fault_of(32, differ), HasSubstr(" meets "));
  const auto end_early = [] {
    if (thread() != 3) __shfl_sync(kAll, 1, 3);
  };
  EXPECT_THAT(fault_of(32, end_early), HasSubstr("a lane that is not in the mask"));
  EXPECT_THAT(fault_of(32, [] { __syncwarp(1U); }), HasSubstr("its lane is not in the mask"));
  EXPECT_EQ(fault_of(32, [] { __shfl_sync(kAll, 1, 3); }), "none");
}

TEST(Emulator, MeetingsThatDoNotFitAreRefused) {
  set({});
  const auto differ = [] { thread() == 0 ? __syncthreads() : void(__syncthreads_or(1)); };
  EXPECT_THAT(fault_of(32, differ), HasSubstr("different kinds of __syncthreads"));
  EXPECT_THAT(fault_of(1, [] { wait_for_team(); }), HasSubstr("without having arrived"));
  EXPECT_THAT(fault_of(1, [] { shared_memory_of(shared_memory(), 1); }), HasSubstr("no block 1"));
}

// The memory of a block that has ended is nobody's.
TEST(Emulator, AccessToABlockThatHasEndedIsRefused) {
  set({});
  const auto leave_early = [] {
    if (blockIdx.x == 1) return;
    for (int i = 0; i < 100; ++i) __syncthreads();
    shared_memory_of(shared_memory(), 1);
  };
  try {
    run({.grid = 2, .block = 32, .cluster = 2}, leave_early);
    ADD_FAILURE() << "it was not refused";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("block 1 has ended"));
  }
}

// Memory that nobody has written shows: results differ by what it held before.
TEST(Emulator, WhatNobodyWroteIsPoison) {
  for (const int poison : {0xff, 0x00, 0x5a}) {
    set({.poison = static_cast<unsigned char>(poison)});
    std::vector<int> read(3);
    run({.grid = 1, .block = 1, .shared_bytes = 8}, [&] {
      read = {shared_memory()[7] & 0xff, *static_cast<char*>(declared_shared(&read, 1)) & 0xff,
              *poisoned(1) & 0xff};
    });
    EXPECT_EQ(read, std::vector<int>(3, poison));
  }
}

// What a missing barrier leaves open differs with the seed: here, who is last.
TEST(Emulator, TheOrderOfThreadsIsDrawnByTheSeed) {
  std::set<unsigned> last, again;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (std::set<unsigned>* found : {&last, &again}) {
      set({.seed = seed});
      unsigned written = 0;
      run({.grid = 2, .block = 64}, [&] {
        __syncthreads();
        __atomic_store_n(&written, blockIdx.x * 64 + thread(), __ATOMIC_RELAXED);
      });
      found->insert(written);
    }
  }
  EXPECT_GT(last.size(), 5);
  EXPECT_EQ(last, again);
}

// Some warps go far ahead of others under some seeds, and keep step under others.
TEST(Emulator, WarpsGoFarAheadUnderSomeSeeds) {
  std::set<bool> ahead;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    set({.seed = seed});
    std::vector<std::atomic<int>> steps(16);
    int most = 0;
    run({.grid = 1, .block = 512}, [&] {
      for (int step = 0; step < 20; ++step) {
        __syncwarp();
        if (lane() == 0) steps[thread() / 32] = step;
        const auto least =
            std::ranges::min_element(steps, {}, [](const auto& s) { return s.load(); });
        atomicMax(&most, step - *least);
      }
    });
    ahead.insert(most > 15);
  }
  EXPECT_EQ(ahead.size(), 2);
}

TEST(Emulator, WordsOfAWarpDoWhatTheySay) {
  set({});
  std::vector<std::vector<unsigned>> got(64);
  run({.grid = 1, .block = 64}, [&] {
    const unsigned own = thread() % 32;
    got[thread()] = {__shfl_sync(kAll, own, 37, 8),      __shfl_xor_sync(kAll, own, 5),
                     __shfl_up_sync(kAll, own, 3U, 16),  __shfl_down_sync(kAll, own, 3U, 16),
                     __ballot_sync(kAll, own % 3 == 0),  __match_any_sync(kAll, own / 8),
                     __reduce_max_sync(kAll, 100 - own), __reduce_add_sync(kAll, own)};
  });
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned own = i % 32;
    EXPECT_EQ(got[i], (std::vector<unsigned>{own / 8 * 8 + 5, own ^ 5, own % 16 < 3 ? own : own - 3,
                                             own % 16 > 12 ? own : own + 3, 0x49249249U,
                                             0xffU << own / 8 * 8, 100, 496}));
  }
}

// Sums by atomics, barriers with a result, and blocks of a cluster that write into each other.
TEST(Emulator, BlocksAndClustersMeet) {
  set({});
  int sum = 0;
  std::vector<int> counts(2), seen(4);
  run({.grid = 4, .block = 96, .shared_bytes = 4, .cluster = 2}, [&] {
    atomicAdd(&sum, 1);
    const int count = __syncthreads_count(thread() % 3 == 0);
    if (thread() == 0 && blockIdx.x % 2 == 0) counts[blockIdx.x / 2] = count;
    arrive_at_team();
    wait_for_team();
    if (thread() == 0)
      *shared_memory_of(shared_memory(), 1 - cluster_rank()) = static_cast<char>(blockIdx.x);
    arrive_at_team();
    wait_for_team();
    if (thread() == 95) seen[blockIdx.x] = *shared_memory();
  });
  EXPECT_EQ(sum, 4 * 96);
  EXPECT_EQ(counts, (std::vector<int>{32, 32}));
  EXPECT_EQ(seen, (std::vector<int>{1, 0, 3, 2}));
  EXPECT_EQ(emulator::counts().block_meetings, 4);
  EXPECT_EQ(emulator::counts().team_meetings, 4);
}

}  // namespace
}  // namespace ballast::emulator
