// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/emulator.h"
#include "tests/emulator/fiber.h"

// The threads of a launch, where they wait, and who goes on next. For emulator.cpp, which has the
// words that kernels know.
namespace ballast::emulator {

struct Block;
struct Warp;

struct Thread {
  uint3 index = {};
  Block* block = nullptr;
  Warp* warp = nullptr;
  int lane = 0;
  int64_t team_phase = -1;      // that it has arrived at and not yet waited for
  const char* waits = nullptr;  // for whom
  std::unique_ptr<Fiber> fiber;
};

// Where some threads wait until enough are there.
struct Barrier {
  int arrived = 0, any = 0, all = 1, count = 0, result = 0;
  int64_t phase = 0;
  Meeting kind = Meeting::kSync;
  std::vector<Thread*> waiting;
  char order[2] = {};  // for order_before and order_after, in turn
};

struct WarpMeeting {
  unsigned mask = 0, arrived = 0;
  const char* what = nullptr;
  Finish finish = nullptr;
  Operands operands = {};
};

struct Warp {
  unsigned alive = 0;
  Thread* lanes[32] = {};
  std::vector<WarpMeeting> meetings;
  char order = 0;
};

// The blocks that can meet: a cluster, or all of a cooperative launch.
struct Team {
  int alive = 0;
  Barrier barrier;
  std::vector<Block*> blocks;
};

struct Block {
  uint3 index = {};
  int alive = 0, rank = 0;  // rank: in its team
  Team* team = nullptr;
  Memory shared;
  std::map<const void*, Memory> declared;
  Barrier barrier;
  std::map<int, Barrier> named;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
};

class Machine {
 public:
  Setting setting;
  Counts counts;
  int device = 0;
  Thread* now = nullptr;

  void run(const Launch& launch, const std::function<void()>& kernel);
  void wait(const char* what);  // until somebody wakes this thread
  void wake(Thread* thread) { runnable_.push_back(thread); }
  void spin();  // lets all others go first
  void complete(Barrier& barrier);
  void complete_if_all(Warp& warp);
  void refuse(const std::string& what);

 private:
  void open(const Launch& launch);
  void admit(const Launch& launch, unsigned first, unsigned count,
             const std::function<void()>& kernel);
  void make_block(const Launch& launch, unsigned number, Team* team,
                  const std::function<void()>& kernel);
  void resume(Thread* thread);
  void leave(Thread& thread);
  void close();
  Thread* next();
  uint64_t random();
  std::string waits() const;

  std::vector<Thread*> runnable_;
  std::vector<std::unique_ptr<Block>> blocks_;  // until the launch has ended
  std::vector<std::unique_ptr<Team>> teams_;
  unsigned present_ = 0;  // blocks that have not ended
  uint64_t random_ = 1;
  size_t reach_ = 1;   // of those that can go on, how many of the last woken may be next
  int64_t spins_ = 0;  // since anybody did anything else
  std::string fault_;
  char begins_ = 0, ends_ = 0;
};

extern Machine machine;

}  // namespace ballast::emulator
