// SPDX-License-Identifier: Apache-2.0
// A datagram of the roll call, to a worker that is asked and to one that asked. It is read as it
// is, and with the right magic number and secret, as from one who knows them.
#include <cstring>

#include "ballast/comm/arrival_packets.h"
#include "tests/fuzz/input_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;
  constexpr uint64_t kSecret = 42;
  const comm::Question asked{.secret = kSecret, .call = {1, 2}};
  for (const uint64_t magic : {uint64_t{0}, comm::kQuestionMagic, comm::kAnswerMagic}) {
    std::vector<uint8_t> datagram(data, data + size);
    if (magic != 0 && size >= 16) {
      std::memcpy(datagram.data(), &magic, 8);
      std::memcpy(datagram.data() + 8, &kSecret, 8);
    }
    const auto bytes = std::as_bytes(std::span(datagram));
    comm::read_question(bytes, kSecret);
    comm::WorkerState state;
    state.worker = 3;
    const bool is_answer = comm::read_answer(bytes, asked, state);
    fuzz::require(is_answer || state.answer == comm::WorkerState::Answer::kSilent,
                  "what is no answer changes nothing");
    fuzz::require(state.call.size() < comm::kTextBytes && state.last_call.size() < comm::kTextBytes,
                  "a text ends within its datagram");
  }
  return 0;
}
