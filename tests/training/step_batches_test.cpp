// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_batches.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::training {
namespace {

batches::Batch numbered(uint64_t i) {
  const auto n = static_cast<int64_t>(i);
  return {.rows = 2,
          .context = 3,
          .inputs = {n, n, n, n, n, n},
          .targets = {n + 1, n + 1, n + 1, -1, n + 1, n + 1}};
}

void expect_step(StepBatches& batches, int64_t first, size_t micro_steps) {
  const std::vector<loading::BatchTensors>& got = batches.next();
  ASSERT_EQ(got.size(), micro_steps);
  for (size_t micro = 0; micro < micro_steps; ++micro) {
    const auto n = first + static_cast<int64_t>(micro);
    EXPECT_TRUE(at::equal(got[micro].inputs.cpu(), at::full({2, 3}, n)));
    at::Tensor targets = at::full({6}, n + 1);
    targets[3] = -1;
    EXPECT_TRUE(at::equal(got[micro].targets.cpu(), targets));
  }
}

void wait_for(const std::atomic<uint64_t>& made, uint64_t count) {
  while (made < count) std::this_thread::yield();
}

// Whether what comes next was prepared or not.
void expect_all_in_order(at::Device device) {
  std::atomic<uint64_t> made = 0;
  const auto make = [&](uint64_t i) {
    const batches::Batch batch = numbered(i);
    ++made;
    return batch;
  };
  StepBatches batches(device, 2);
  EXPECT_FALSE(batches.is_started());
  batches.start(make, 8);
  expect_step(batches, 0, 2);
  batches.prepare();  // some of it, or all
  batches.prepare();
  expect_step(batches, 2, 2);
  wait_for(made, 6);
  batches.prepare();
  expect_step(batches, 4, 2);
  expect_step(batches, 6, 2);
  batches.prepare();  // there are no more
  EXPECT_THROW(batches.next(), std::out_of_range);
}

// Of those that were prepared none is left.
void expect_a_new_start(at::Device device) {
  StepBatches batches(device, 1);
  for (const uint64_t first : {0, 100}) {
    std::atomic<uint64_t> made = 0;
    batches.start(
        [&](uint64_t i) {
          ++made;
          return numbered(first + i);
        },
        20);
    expect_step(batches, static_cast<int64_t>(first), 1);
    wait_for(made, 3);  // so the second is there
    batches.prepare();
    batches.stop();
    EXPECT_FALSE(batches.is_started());
  }
}

// What cannot be made is missed by the step that needs it.
void expect_errors_in_their_step(at::Device device) {
  StepBatches batches(device, 1);
  batches.start(
      [](uint64_t i) {
        if (i == 1) throw std::runtime_error("damaged");
        return numbered(i);
      },
      3);
  expect_step(batches, 0, 1);
  batches.prepare();
  EXPECT_THROW(batches.next(), std::runtime_error);
  EXPECT_THROW(batches.next(), std::runtime_error);
}

TEST(StepBatches, ComeInOrderWhetherPreparedOrNot) { expect_all_in_order(at::kCPU); }
TEST(StepBatches, StartAnew) { expect_a_new_start(at::kCPU); }
TEST(StepBatches, PassOnErrorsInTheStepTheyBelongTo) { expect_errors_in_their_step(at::kCPU); }

TEST(StepBatchesCuda, AreThoseOfTheCpuInTheSamePlace) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  const at::Device gpu(at::kCUDA, 0);
  expect_all_in_order(gpu);
  expect_a_new_start(gpu);
  expect_errors_in_their_step(gpu);
  StepBatches batches(gpu, 1);
  batches.start(numbered, 3);
  const void* const place = batches.next().front().inputs.data_ptr();
  batches.prepare();
  EXPECT_EQ(batches.next().front().inputs.data_ptr(), place);
  EXPECT_EQ(batches.next().front().inputs.data_ptr(), place);
}

}  // namespace
}  // namespace ballast::training
