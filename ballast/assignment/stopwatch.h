// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace ballast {

// Adds the milliseconds of its own lifetime to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& milliseconds)
      : milliseconds_(milliseconds), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin_;
    milliseconds_ += taken.count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& milliseconds_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace ballast
