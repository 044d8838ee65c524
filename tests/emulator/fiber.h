// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>

namespace ballast::emulator {

// A function with a stack of its own, which can pause anywhere and go on later; sanitizers know of
// it. The thread sanitizer takes each for a thread: what one wrote is known to another only where
// both say so (order_before, order_after).
class Fiber {
 public:
  // Starts with the first resume().
  explicit Fiber(std::function<void()> body);
  // One that has not ended is resumed once more: its pause() throws, through its body. All that it
  // did is then known outside.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it pauses or ends. From outside any fiber.
  void resume();
  // Goes back to whoever resumed it. From within.
  void pause();
  bool ended() const { return ended_; }

 private:
  struct Stack;  // of Boost.Context's kind, which remembers where it is

  void enter();
  void leave();

  std::function<void()> body_;
  boost::context::fiber inside_, outside_;
  void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  bool ended_ = false, cancelled_ = false;
  void* sanitizer_thread_ = nullptr;   // of the thread sanitizer: this one,
  void* sanitizer_outside_ = nullptr;  // and the one that resumed it
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
  void* held_ = nullptr;  // of the address sanitizer
};

// All that came before an order_before of an address comes before what follows a later order_after
// of it. For the thread sanitizer; nothing else needs it.
void order_before(void* address);
void order_after(void* address);

// What the emulator does itself, on whatever fiber, is no access of the emulated thread.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace ballast::emulator
