// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// The runtime's, where there is one: this file is compiled without the thread sanitizer.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace ballast::emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned kUnordered = 1;  // of a switch: what comes before it is not known after it

struct Cancelled {};

}  // namespace

void order_before(void* address) {
  if (__tsan_release != nullptr) __tsan_release(address);
}
void order_after(void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(address);
}

Unseen::Unseen() {
  if (AnnotateIgnoreReadsBegin == nullptr) return;
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unseen::~Unseen() {
  if (AnnotateIgnoreReadsEnd == nullptr) return;
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

struct Fiber::Stack {
  Fiber* owner;
  boost::context::protected_fixedsize_stack allocator{kStackBytes};

  boost::context::stack_context allocate() {
    const boost::context::stack_context made = allocator.allocate();
    owner->stack_ = static_cast<char*>(made.sp) - made.size;
    owner->stack_bytes_ = made.size;
#if defined(__SANITIZE_ADDRESS__)
    // A stack that was there before has left marks of functions that never returned.
    ASAN_UNPOISON_MEMORY_REGION(owner->stack_, made.size);
#endif
    return made;
  }
  void deallocate(boost::context::stack_context& stack) { allocator.deallocate(stack); }
};

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  const auto live = [this](boost::context::fiber&& outside) {
    outside_ = std::move(outside);
    enter();
    try {
      if (!cancelled_) body_();
    } catch (const Cancelled&) {
    }
    if (cancelled_) order_before(this);
    ended_ = true;
    leave();
    return std::move(outside_);
  };
  inside_ = boost::context::fiber(std::allocator_arg, Stack{this}, live);
}

Fiber::~Fiber() {
  cancelled_ = true;
  if (!ended_) {
    resume();
    order_after(this);
  }
  if (sanitizer_thread_ != nullptr) __tsan_destroy_fiber(sanitizer_thread_);
}

void Fiber::enter() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(held_, &outside_stack_, &outside_bytes_);
#endif
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ended_ ? nullptr : &held_, outside_stack_, outside_bytes_);
#endif
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(sanitizer_outside_, kUnordered);
}

void Fiber::resume() {
  if (__tsan_create_fiber != nullptr) {
    if (sanitizer_thread_ == nullptr) sanitizer_thread_ = __tsan_create_fiber(0);
    sanitizer_outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(sanitizer_thread_, kUnordered);
  }
#if defined(__SANITIZE_ADDRESS__)
  void* held = nullptr;
  __sanitizer_start_switch_fiber(&held, stack_, stack_bytes_);
#endif
  inside_ = std::move(inside_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(held, nullptr, nullptr);
#endif
}

void Fiber::pause() {
  leave();
  outside_ = std::move(outside_).resume();
  enter();
  if (cancelled_) throw Cancelled{};
}

}  // namespace ballast::emulator
