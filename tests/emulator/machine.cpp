// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/machine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ballast::emulator {
namespace {

constexpr int64_t kMostSpins = 10'000'000;
// With a small one a warp goes far ahead of others, with a large one all go side by side.
constexpr size_t kReaches[] = {4, 64, SIZE_MAX};

}  // namespace

Machine machine;

uint64_t Machine::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

Thread* Machine::next() {
  const size_t among = std::min(reach_, runnable_.size());
  std::swap(runnable_[runnable_.size() - 1 - random() % among], runnable_.back());
  Thread* thread = runnable_.back();
  runnable_.pop_back();
  return thread;
}

void Machine::make_block(const Launch& launch, unsigned number, Team* team,
                         const std::function<void()>& kernel) {
  blocks_.push_back(std::make_unique<Block>());
  Block& block = *blocks_.back();
  const dim3& size = launch.block;
  const unsigned count = size.x * size.y * size.z;
  block.index = {number % launch.grid.x, number / launch.grid.x % launch.grid.y,
                 number / launch.grid.x / launch.grid.y};
  block.team = team;
  block.rank = static_cast<int>(team->blocks.size());
  block.shared = poisoned(launch.shared_bytes);
  block.warps.resize((count + 31) / 32);
  block.threads.resize(count);
  block.alive = static_cast<int>(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.lane = static_cast<int>(i % 32);
    thread.warp->alive |= 1U << thread.lane;
    thread.warp->lanes[thread.lane] = &thread;
    thread.fiber = std::make_unique<Fiber>([this, &kernel, &thread] {
      order_after(&begins_);
      kernel();
      order_before(&ends_);
      leave(thread);
    });
    wake(&thread);
  }
  ++present_;
  team->alive += block.alive;
  team->blocks.push_back(&block);
}

// A team of blocks from `first` on begins.
void Machine::admit(const Launch& launch, unsigned first, unsigned count,
                    const std::function<void()>& kernel) {
  teams_.push_back(std::make_unique<Team>());
  for (unsigned i = 0; i < count; ++i) make_block(launch, first + i, teams_.back().get(), kernel);
  order_before(&begins_);
}

void Machine::open(const Launch& launch) {
  ++counts.launches;
  random_ = setting.seed * 0x9E3779B97F4A7C15U | 1;
  reach_ = kReaches[setting.seed % std::size(kReaches)];
  spins_ = 0;
  fault_.clear();
  blockDim = launch.block;
  gridDim = launch.grid;
}

void Machine::close() {
  now = nullptr;
  runnable_.clear();
  blocks_.clear();
  teams_.clear();
  present_ = 0;
}

void Machine::resume(Thread* thread) {
  now = thread;
  threadIdx = now->index;
  blockIdx = now->block->index;
  now->fiber->resume();
  if (now->fiber->ended()) now->fiber.reset();
}

void Machine::run(const Launch& launch, const std::function<void()>& kernel) {
  open(launch);
  const unsigned blocks = launch.grid.x * launch.grid.y * launch.grid.z;
  const unsigned together = launch.cooperative ? blocks : launch.cluster;
  const auto room = static_cast<unsigned>(setting.processors);
  for (unsigned begun = 0; fault_.empty();) {
    for (; begun < blocks && (present_ == 0 || present_ + together <= room); begun += together)
      admit(launch, begun, together, kernel);
    if (runnable_.empty()) break;
    resume(next());
    if (spins_ > kMostSpins) fault_ = "threads spin without end";
  }
  order_after(&ends_);
  if (fault_.empty() && present_ > 0) fault_ = "threads wait without end";
  const std::string fault = fault_.empty() ? "" : fault_ + waits();
  close();
  if (!fault.empty()) throw std::runtime_error("the emulated GPU: " + fault);
}

std::string Machine::waits() const {
  std::map<std::string, int> found;
  for (const auto& block : blocks_) {
    for (const Thread& thread : block->threads) {
      if (thread.fiber == nullptr) continue;
      ++found[thread.waits == nullptr ? "go on" : std::string("wait at ") + thread.waits];
    }
  }
  std::string text;
  for (const auto& [what, count] : found) text += "; " + std::to_string(count) + " " + what;
  return text;
}

void Machine::wait(const char* what) {
  Thread& thread = *now;
  thread.waits = what;
  spins_ = 0;
  thread.fiber->pause();
  thread.waits = nullptr;
}

void Machine::spin() {
  ++spins_;
  Thread& thread = *now;
  runnable_.insert(runnable_.begin(), &thread);
  thread.waits = "something in memory";
  thread.fiber->pause();
  thread.waits = nullptr;
}

void Machine::refuse(const std::string& what) {
  fault_ = what + ", in thread " + std::to_string(threadIdx.x) + "," + std::to_string(threadIdx.y) +
           " of block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y);
  order_before(&ends_);
  for (;;) now->fiber->pause();  // run() ends it
}

void Machine::complete(Barrier& barrier) {
  barrier.result = barrier.kind == Meeting::kAny   ? barrier.any
                   : barrier.kind == Meeting::kAll ? barrier.all
                                                   : barrier.count;
  barrier.arrived = barrier.any = barrier.count = 0;
  barrier.all = 1;
  ++barrier.phase;
  for (Thread* thread : barrier.waiting) wake(thread);
  barrier.waiting.clear();
}

// A thread that has ended is waited for no more.
void Machine::leave(Thread& thread) {
  const Unseen unseen;
  spins_ = 0;
  Block& block = *thread.block;
  Team& team = *block.team;
  --block.alive;
  --team.alive;
  if (block.alive == 0) --present_;
  thread.warp->alive &= ~(1U << thread.lane);
  if (block.barrier.arrived > 0 && block.barrier.arrived == block.alive) complete(block.barrier);
  if (team.barrier.arrived > 0 && team.barrier.arrived == team.alive) complete(team.barrier);
  complete_if_all(*thread.warp);
}

void Machine::complete_if_all(Warp& warp) {
  for (size_t i = 0; i < warp.meetings.size(); ++i) {
    WarpMeeting& meeting = warp.meetings[i];
    if (meeting.arrived != (meeting.mask & warp.alive)) continue;
    if (meeting.finish != nullptr) meeting.finish(meeting.arrived, meeting.operands);
    for (int lane = 0; lane < 32; ++lane) {
      if ((meeting.arrived >> lane & 1) != 0 && warp.lanes[lane] != now) wake(warp.lanes[lane]);
    }
    warp.meetings.erase(warp.meetings.begin() + static_cast<std::ptrdiff_t>(i));
    return;  // a thread's coming or end completes one
  }
}

}  // namespace ballast::emulator
