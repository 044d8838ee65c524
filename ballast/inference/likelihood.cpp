// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/likelihood.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ballast/kernels/vector_math.h"

namespace ballast::inference {

WrittenToken likelihood_of(tokenizer::TokenId token, std::span<const float> logits,
                           int64_t likeliest) {
  const auto size = static_cast<int64_t>(logits.size());
  const float highest = kernels::vector_maximum(logits.data(), size);
  std::vector<float> powers(logits.begin(), logits.end());
  const float log_sum = std::log(kernels::vector_exponentiate(powers.data(), size, highest));
  // The difference first: both may be huge.
  const auto of = [&](tokenizer::TokenId id) {
    return Likelihood{id, (logits[id] - highest) - log_sum};
  };
  WrittenToken written{.chosen = of(token)};
  if (likeliest <= 0) return written;
  std::vector<tokenizer::TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), tokenizer::TokenId{0});
  const auto end = order.begin() + std::min(likeliest, size);
  std::ranges::partial_sort(order, end, [&](tokenizer::TokenId a, tokenizer::TokenId b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (auto id = order.begin(); id != end; ++id) written.likeliest.push_back(of(*id));
  return written;
}

}  // namespace ballast::inference
