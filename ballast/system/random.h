// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace ballast {

// Counter-based randomness: a number is a pure function of (seed, purpose, counters), so nothing
// depends on how many numbers were drawn before. Purposes are short names: "init", "batch",
// "sample".
uint64_t random_bits(uint64_t seed, std::string_view purpose, uint64_t a = 0, uint64_t b = 0);

// A stream of random numbers that starts at (seed, purpose, a, b); draw i is a function of those
// and i.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view purpose, uint64_t a = 0, uint64_t b = 0);

  uint64_t bits();
  uint64_t below(uint64_t n);  // uniform in [0, n); n > 0
  double uniform();            // uniform in [0, 1)
  double normal();             // standard normal

 private:
  uint64_t key_, counter_ = 0;
};

}  // namespace ballast
