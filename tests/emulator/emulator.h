// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>

// A GPU on the CPU, for tests: runs our CUDA kernels where there is no GPU, each thread as a fiber,
// one at a time, in an order that a seed draws. translate.py makes of a kernel's file what a C++
// compiler takes; cuda_on_cpu.h has the intrinsics. It tells nothing of time. What it does tell:
// whether results depend on the order of threads or on memory that nobody wrote, whether threads
// wait for each other without end, and, under sanitizers, what is read or written out of bounds
// and without an order.
namespace ballast::emulator {

// What the emulated device is like, and how a launch runs.
struct Setting {
  uint64_t seed = 1;                // of the order of threads
  unsigned char poison = 0xff;      // what memory holds before anybody writes
  int processors = 8;               // blocks that are there at a time
  int cluster_blocks = 16;          // most of a cluster; 0: no clusters
  size_t shared_bytes = 227 << 10;  // that a block can have
};
void set(const Setting& setting);
const Setting& setting();
int device_number();  // another one after each set()

// Memory that nobody has written; of exactly this size, for the address sanitizer.
struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;
Memory poisoned(size_t bytes);

// What was done since the last set().
struct Counts {
  int64_t launches = 0;
  int64_t block_meetings = 0;  // __syncthreads and its like
  int64_t team_meetings = 0;   // of the blocks of a cluster or a grid
};
const Counts& counts();

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;      // blocks of one
  bool cooperative = false;  // all blocks are there at once
};
// Runs `kernel` in every thread and returns when all have ended. Throws std::runtime_error where
// threads wait without end, or do together what their masks do not allow.
void run(const Launch& launch, const std::function<void()>& kernel);

// From here on: within a kernel.

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

char* shared_memory();                          // the launch's, of this block
char* shared_memory_of(void* here, int block);  // the same place in another block of the cluster
int cluster_rank();
// Shared memory that a kernel declares with its size; `key`: of the declaration.
void* declared_shared(const void* key, size_t bytes);

enum class Meeting { kSync, kAny, kAll, kCount };
int meet_block(Meeting kind, int value);
void meet_some(int barrier, int threads);  // bar.sync
void arrive_at_team();                     // of a cluster, or of the grid where there is none
void wait_for_team();

// All lanes of `mask` come here with an operand each; the last gives `finish` all of them, by lane.
// Without a `finish` they wait for what each has written, which nothing else of a warp does.
using Operands = void* [32];
using Finish = void (*)(unsigned mask, Operands& operands);
void meet_warp(unsigned mask, const char* what, void* operand, Finish finish);
int lane();

// Adds one to a counter in memory, and waits until it has `goal`, as blocks do that have no other
// place to meet. What came before is known to all that have waited.
void meet_at(unsigned* counter, unsigned goal);

[[noreturn]] void refuse(const char* what);

}  // namespace ballast::emulator
