// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "ballast/assignment/solver.h"
#include "tests/assignment/random_problem.h"

namespace {

std::atomic<int64_t> allocations{0};

void* allocate(size_t size, size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (::posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0)
    throw std::bad_alloc();
  return memory;
}

}  // namespace

// Every allocation of this program is counted. The ends are not inlined: GCC would see memory from
// `new` go to free(), and warn.
void* operator new(size_t size) { return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace ballast::assignment {
namespace {

test::OwnedProblem random_problem(uint64_t seed) {
  test::OwnedProblem made{.tokens = 700, .experts = 24, .bounds = equal_loads(700, 24)};
  RandomStream random(seed, "allocations");
  made.scores.resize(700 * 24);
  for (float& score : made.scores) score = static_cast<float>(random.normal());
  return made;
}

TEST(Allocations, AreCounted) {
  const int64_t before = allocations;
  std::vector<int> memory(1000);
  EXPECT_GT(allocations, before);
}

TEST(Allocations, TheExactSolverNeedsNoneAfterTheFirstCallOfASize) {
  const auto solver = make_solver(SolverKind::kExact);
  Assignment result;
  for (uint64_t seed = 0; seed < 2; ++seed)  // cold, then warm: both ways are part of a size
    solver->solve(random_problem(seed).problem(),
                  seed == 0 ? std::span<const double>() : result.prices, result);
  for (uint64_t seed = 2; seed < 8; ++seed) {
    const test::OwnedProblem made = random_problem(seed);
    const AssignmentProblem problem = made.problem();
    const std::vector<double> prices = result.prices;
    const int64_t before = allocations;
    solver->solve(problem, seed % 2 == 0 ? prices : std::span<const double>(), result);
    EXPECT_EQ(allocations - before, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ballast::assignment
