// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ballast/comm/arrivals.h"

namespace ballast::comm {

// The datagrams of arrivals.h: all workers of a job run the same program, so these are sent as they
// are.

inline constexpr uint64_t kQuestionMagic = 0x42616c6c61737451, kAnswerMagic = 0x42616c6c61737441;
inline constexpr size_t kTextBytes = 240;

struct Question {
  uint64_t magic = kQuestionMagic, secret = 0;
  CallNumber call;
};

struct Answer {
  uint64_t magic = kAnswerMagic, secret = 0;
  CallNumber call;  // of the question
  double last_call_age = 0;
  int32_t worker = 0;
  uint8_t arrived = 0, waiting = 0;
  std::array<char, kTextBytes> text = {}, last_text = {};
};

// What does not fit is cut; the last byte stays 0.
void put_text(std::array<char, kTextBytes>& to, const std::string& text);

// What came from the network, from anyone. Nothing: it is no question of this job's.
std::optional<Question> read_question(std::span<const std::byte> datagram, uint64_t secret);
// Fills in `state` and returns true if the datagram is the answer of `state.worker` to `question`.
bool read_answer(std::span<const std::byte> datagram, const Question& question, WorkerState& state);

}  // namespace ballast::comm
