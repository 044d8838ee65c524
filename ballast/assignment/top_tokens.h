// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ballast::assignment {

// Picks the tokens that are worth most to one expert, in one pass over its row: maxima of blocks
// give a bound that few tokens pass, and only those are compared with each other.
class TopTokens {
 public:
  struct Candidate {
    float worth;
    int32_t token;
  };

  // worth(t) = scores[t] - price[t].
  void value(std::span<const float> scores, std::span<const float> price);
  void leave_out(int32_t token);

  // The `count` tokens that are worth most, of equal ones the first; fewer when no more are allowed
  // (worth -inf is forbidden or left out). Valid until the next call.
  std::span<const Candidate> best(int64_t count);
  // After best(): what the best of the others is worth; without others, the last of the best, and
  // -inf where nothing is allowed.
  float worth_of_next() const { return worth_of_next_; }

 private:
  float bound(int64_t count);
  void find_block_maxima();

  std::vector<float> worth_, block_max_, sorted_;
  std::vector<Candidate> candidates_;
  int64_t tokens_ = 0;
  float worth_of_next_ = 0;
};

}  // namespace ballast::assignment
