// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "tests/emulator/machine.h"

namespace ballast::emulator {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

Thread& self() { return *machine.now; }

// Comes to a barrier of `wanted` threads; true: it was the last.
bool arrive(Barrier& barrier, int wanted, Meeting kind, int value) {
  if (barrier.arrived > 0 && barrier.kind != kind)
    machine.refuse("threads of a block meet at different kinds of __syncthreads");
  barrier.kind = kind;
  order_before(&barrier.order[barrier.phase % 2]);
  ++barrier.arrived;
  barrier.any |= value != 0 ? 1 : 0;
  barrier.all &= value != 0 ? 1 : 0;
  barrier.count += value != 0 ? 1 : 0;
  if (barrier.arrived < wanted) return false;
  machine.complete(barrier);
  return true;
}

void meet(Barrier& barrier, int wanted, Meeting kind, int value, const char* what) {
  char* const order = &barrier.order[barrier.phase % 2];
  if (!arrive(barrier, wanted, kind, value)) {
    barrier.waiting.push_back(&self());
    machine.wait(what);
  }
  order_after(order);
}

}  // namespace

void set(const Setting& setting) {
  machine.setting = setting;
  machine.counts = {};
  ++machine.device;
}
int device_number() { return machine.device; }
const Setting& setting() { return machine.setting; }
const Counts& counts() { return machine.counts; }

Memory poisoned(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, std::max<size_t>(1, bytes)) != 0) throw std::bad_alloc();
  std::memset(memory, setting().poison, bytes);
  return Memory(static_cast<char*>(memory));
}

void run(const Launch& launch, const std::function<void()>& kernel) { machine.run(launch, kernel); }

int lane() { return self().lane; }
int cluster_rank() { return self().block->rank; }
char* shared_memory() { return self().block->shared.get(); }

char* shared_memory_of(void* here, int block) {
  const Unseen unseen;
  const Block& own = *self().block;
  if (block < 0 || block >= static_cast<int>(own.team->blocks.size()))
    machine.refuse("there is no block " + std::to_string(block) + " in the cluster");
  const Block& other = *own.team->blocks[static_cast<size_t>(block)];
  if (other.alive == 0) machine.refuse("block " + std::to_string(block) + " has ended");
  return other.shared.get() + (static_cast<char*>(here) - own.shared.get());
}

void* declared_shared(const void* key, size_t bytes) {
  const Unseen unseen;
  Memory& memory = self().block->declared[key];
  if (memory == nullptr) memory = poisoned(bytes);
  return memory.get();
}

int meet_block(Meeting kind, int value) {
  const Unseen unseen;
  Block& block = *self().block;
  if (block.barrier.arrived == 0) ++machine.counts.block_meetings;
  meet(block.barrier, block.alive, kind, value, "__syncthreads");
  return block.barrier.result;
}

void meet_some(int barrier, int threads) {
  const Unseen unseen;
  meet(self().block->named[barrier], threads, Meeting::kSync, 0, "bar.sync");
}

void arrive_at_team() {
  const Unseen unseen;
  Thread& thread = self();
  Team& team = *thread.block->team;
  if (thread.team_phase >= 0) machine.refuse("it arrives at its team twice");
  if (team.barrier.arrived == 0) ++machine.counts.team_meetings;
  thread.team_phase = team.barrier.phase;
  arrive(team.barrier, team.alive, Meeting::kSync, 0);
}

void wait_for_team() {
  const Unseen unseen;
  Thread& thread = self();
  Barrier& barrier = thread.block->team->barrier;
  if (thread.team_phase < 0) machine.refuse("it waits for its team without having arrived");
  if (barrier.phase == thread.team_phase) {
    barrier.waiting.push_back(&thread);
    machine.wait("its team");
  }
  order_after(&barrier.order[thread.team_phase % 2]);
  thread.team_phase = -1;
}

void meet_warp(unsigned mask, const char* what, void* operand, Finish finish) {
  const Unseen unseen;
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const unsigned own = 1U << thread.lane;
  if ((mask & own) == 0) machine.refuse(std::string(what) + ": its lane is not in the mask");
  const auto found = std::find_if(warp.meetings.begin(), warp.meetings.end(), [&](const auto& m) {
    return m.mask == mask && (m.arrived & own) == 0;
  });
  WarpMeeting& meeting = found != warp.meetings.end() ? *found : warp.meetings.emplace_back();
  if (meeting.what != nullptr && meeting.finish != finish)
    machine.refuse(std::string(what) + " meets " + meeting.what);
  meeting.mask = mask;
  meeting.what = what;
  meeting.finish = finish;
  meeting.arrived |= own;
  meeting.operands[thread.lane] = operand;
  if (finish == nullptr) order_before(&warp.order);
  if (meeting.arrived == (mask & warp.alive)) {
    machine.complete_if_all(warp);
  } else {
    machine.wait(what);
  }
  if (finish == nullptr) order_after(&warp.order);
}

void meet_at(unsigned* counter, unsigned goal) {
  const Unseen unseen;
  order_before(counter);
  const unsigned arrived = __atomic_add_fetch(counter, 1U, __ATOMIC_RELAXED);
  if (arrived == goal) ++machine.counts.team_meetings;
  while (static_cast<int>(__atomic_load_n(counter, __ATOMIC_RELAXED) - goal) < 0) machine.spin();
  order_after(counter);
}
void refuse(const char* what) {
  machine.refuse(what);
  std::abort();
}

}  // namespace ballast::emulator
