// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/arrival_packets.h"

#include <algorithm>
#include <cstring>

namespace ballast::comm {

void put_text(std::array<char, kTextBytes>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), kTextBytes - 1));
}

std::optional<Question> read_question(std::span<const std::byte> datagram, uint64_t secret) {
  Question question;
  if (datagram.size() != sizeof(question)) return {};
  std::memcpy(&question, datagram.data(), sizeof(question));
  if (question.magic != kQuestionMagic || question.secret != secret) return {};
  return question;
}

bool read_answer(std::span<const std::byte> datagram, const Question& question,
                 WorkerState& state) {
  Answer answer;
  if (datagram.size() != sizeof(answer)) return false;
  std::memcpy(&answer, datagram.data(), sizeof(answer));
  if (answer.magic != kAnswerMagic || answer.secret != question.secret) return false;
  if (answer.worker != state.worker || answer.call.group != question.call.group ||
      answer.call.number != question.call.number)
    return false;
  answer.text.back() = answer.last_text.back() = '\0';
  state.answer = WorkerState::Answer::kAnswered;
  state.arrived = answer.arrived != 0;
  state.waiting = answer.waiting != 0;
  state.call = answer.text.data();
  state.last_call = answer.last_text.data();
  state.last_call_age = answer.last_call_age;
  return true;
}

}  // namespace ballast::comm
