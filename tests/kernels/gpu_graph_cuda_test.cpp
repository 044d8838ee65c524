// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/gpu_graph.h"

namespace ballast::kernels {
namespace {

// The test program does not link CUDA; the plugin has brought its runtime for all to see, and that
// the driver.
template <typename... Args>
void call(const char* name, Args... args) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && driver != nullptr) found = dlsym(driver, name);
  auto* const function = reinterpret_cast<int (*)(Args...)>(found);
  ASSERT_NE(function, nullptr) << name;
  ASSERT_EQ(function(args...), 0) << name;
}

class GpuGraphCuda : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(load_cuda_plugin().loaded);
    at::zeros({1}, at::kCUDA);  // CUDA is there from here on
    constexpr unsigned kNonBlocking = 1;
    call("cudaStreamCreateWithFlags", &stream_, kNonBlocking);
  }
  void TearDown() override {
    if (stream_ != nullptr) call("cudaStreamDestroy", stream_);
  }

  // What bytes of all ones are after `set`, recorded and replayed, and computed plainly.
  void expect_as_plainly(const std::string& what, int64_t size,
                         const std::function<void(uint8_t* bytes)>& set) {
    SCOPED_TRACE(what);
    // A stream that libtorch did not make has its address as its id.
    const c10::StreamGuard guard(c10::Stream(c10::Stream::UNSAFE, at::Device(at::kCUDA, 0),
                                             reinterpret_cast<c10::StreamId>(stream_)));
    const auto options = at::device(at::kCUDA).dtype(at::kByte);
    const at::Tensor plain = at::full({size}, 255, options), replayed = plain.clone();
    set(plain.data_ptr<uint8_t>());
    const auto graph = make_gpu_graph(nullptr);
    graph->record([&] { set(replayed.data_ptr<uint8_t>()); });
    EXPECT_TRUE(replayed.eq(255).all().item<bool>()) << "recorded, and run";
    for (int time = 0; time < 2; ++time) {
      replayed.fill_(255);
      graph->replay();
      EXPECT_TRUE(at::equal(replayed, plain)) << "replay " << time;
    }
  }

  void* stream_ = nullptr;
};

TEST_F(GpuGraphCuda, SetsTheMemoryThatWasRecordedAndNoOther) {
  for (const int64_t first : {0, 16, 3, 4, 250}) {
    for (const int64_t size : {1, 7, 16, 64, 100, 4099, 1 << 20, (1 << 20) + 16}) {
      const std::string where = std::to_string(size) + " bytes from " + std::to_string(first);
      expect_as_plainly(where, first + size + 64, [&](uint8_t* bytes) {
        call("cudaMemsetAsync", static_cast<void*>(bytes + first), 0xa7, static_cast<size_t>(size),
             stream_);
      });
    }
  }
}

TEST_F(GpuGraphCuda, SetsWordsAndRows) {
  using Address = unsigned long long;  // CUdeviceptr
  const auto at = [](uint8_t* bytes, int64_t first) {
    return static_cast<Address>(reinterpret_cast<uintptr_t>(bytes + first));
  };
  for (const int64_t first : {0, 4, 36}) {
    expect_as_plainly("words of four bytes", 600, [&](uint8_t* bytes) {
      call("cuMemsetD32Async", at(bytes, first), 0x12345678U, size_t{101}, stream_);
    });
    expect_as_plainly("words of two bytes", 600, [&](uint8_t* bytes) {
      call("cuMemsetD16Async", at(bytes, first + 2), static_cast<unsigned short>(0xbeef),
           size_t{101}, stream_);
    });
  }
  expect_as_plainly("rows beside each other", 600, [&](uint8_t* bytes) {
    call("cudaMemset2DAsync", static_cast<void*>(bytes + 5), size_t{20}, 9, size_t{20}, size_t{7},
         stream_);
  });
  expect_as_plainly("rows apart", 600, [&](uint8_t* bytes) {
    call("cudaMemset2DAsync", static_cast<void*>(bytes + 5), size_t{32}, 9, size_t{20}, size_t{7},
         stream_);
  });
}

// Libraries clear their counters between kernels.
TEST_F(GpuGraphCuda, KeepsTheOrderOfWhatItSets) {
  expect_as_plainly("between kernels", 4096, [&](uint8_t* bytes) {
    const at::Tensor all = at::from_blob(bytes, {4096}, at::device(at::kCUDA).dtype(at::kByte));
    for (int i = 0; i < 20; ++i) {
      all.mul_(3).add_(i);
      call("cudaMemsetAsync", static_cast<void*>(bytes + 64 * i), i, size_t{100}, stream_);
      all.slice(0, 32, 4096).add_(all.slice(0, 0, 4064).clone());
    }
  });
}

}  // namespace
}  // namespace ballast::kernels
