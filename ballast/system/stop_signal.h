// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace ballast {

// The line on stderr when the program is asked to stop.
inline constexpr std::string_view kStopMessage =
    "stopping as soon as it is safe; a second signal ends it at once\n";

// Signals within this time of one that counts are the same request: `timeout` sends its signal to a
// process and then to its group.
inline constexpr std::chrono::milliseconds kOneRequest{500};

// Counts requests, for whoever takes signals otherwise than by a StopSignal.
class StopRequests {
 public:
  // A signal came just now. False: it belongs to the request before.
  bool add() {
    const auto now = std::chrono::steady_clock::now();
    if (count_ > 0 && now - last_ <= kOneRequest) return false;
    last_ = now;
    ++count_;
    return true;
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
  std::chrono::steady_clock::time_point last_;
};

// While an object exists, SIGINT, SIGTERM and SIGUSR1 (which starters of many workers pass on) ask
// the program to finish what it is doing and stop; one that comes later than kOneRequest after the
// first ends it at once. One object at a time.
class StopSignal {
 public:
  StopSignal();
  // Puts the former handlers back, unless a stop was requested. Then ours stay, since the program
  // is about to end: signals of that request must not cut it short, and a second one still can.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

// Waits until `descriptor` can be read, or has ended. False: a StopSignal was asked to stop before
// that. Any thread. Without a StopSignal it just waits.
bool wait_for_input(int descriptor);

}  // namespace ballast
