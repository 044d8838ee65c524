// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::experts {

// Tokens of a group whose probabilities are summed together (gate_choices.h).
inline constexpr int64_t kTokensOfGatePart = 64;

inline int64_t num_gate_parts(int64_t tokens_of_group) {
  return (tokens_of_group + kTokensOfGatePart - 1) / kTokensOfGatePart;
}

}  // namespace ballast::experts
