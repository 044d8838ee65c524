// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/missing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace ballast::comm {
namespace {

// "3", or "3 (on node7)".
std::string name_of(const WorkerState& state) {
  return state.machine.empty() ? std::to_string(state.worker)
                               : fmt::format("{} (on {})", state.worker, state.machine);
}

// "worker 3", "workers 1, 3", and how many more beyond eight.
std::string workers_text(const std::vector<std::string>& workers) {
  constexpr size_t kNamed = 8;
  const size_t named = std::min(workers.size(), kNamed);
  std::string text =
      fmt::format("worker{} {}", workers.size() == 1 ? "" : "s",
                  fmt::join(workers.begin(), workers.begin() + static_cast<long>(named), ", "));
  if (workers.size() > named) text += fmt::format(" and {} more", workers.size() - named);
  return text;
}

std::string last_call_text(const WorkerState& state) {
  return state.last_call.empty() ? "it has begun no call yet"
                                 : fmt::format("the last it began, {:.1f} seconds ago, was {}",
                                               state.last_call_age, state.last_call);
}

std::string gone_text(const std::vector<std::string>& gone, const char* whose) {
  if (gone.empty()) return "";
  return fmt::format("\n  {}{} {} ended", workers_text(gone), whose,
                     gone.size() == 1 ? "has" : "have");
}

std::string silent_text(const std::vector<std::string>& silent, const char* whose) {
  if (silent.empty()) return "";
  return fmt::format("\n  {}{} {} not answer: stopped, or the machine or its network is down",
                     workers_text(silent), whose, silent.size() == 1 ? "does" : "do");
}

std::string outside_text(std::span<const WorkerState> outside) {
  constexpr const char* kWhose = ", not of this group,";
  std::vector<std::string> gone, silent, busy;
  for (const WorkerState& state : outside) {
    if (state.answer == WorkerState::Answer::kGone) {
      gone.push_back(name_of(state));
    } else if (state.answer == WorkerState::Answer::kSilent) {
      silent.push_back(name_of(state));
    } else if (!state.waiting) {
      busy.push_back(name_of(state));
    }
  }
  std::string text = gone_text(gone, kWhose) + silent_text(silent, kWhose);
  if (!busy.empty())
    text += fmt::format("\n  {}{} {} in no call", workers_text(busy), kWhose,
                        busy.size() == 1 ? "waits" : "wait");
  return text;
}

}  // namespace

std::string missing_text(std::span<const WorkerState> members, const std::string& call,
                         std::span<const WorkerState> outside) {
  std::vector<std::string> gone, silent, busy;
  std::string text;
  for (const WorkerState& state : members) {
    if (state.answer == WorkerState::Answer::kGone) {
      gone.push_back(name_of(state));
    } else if (state.answer == WorkerState::Answer::kSilent) {
      silent.push_back(name_of(state));
    } else if (!state.arrived) {
      text += fmt::format("\n  worker {} has not come to this call: {}{}", name_of(state),
                          last_call_text(state), state.waiting ? "; it waits there" : "");
    } else if (!state.call.empty() && state.call != call) {
      text += fmt::format("\n  worker {} made another call here: {}", name_of(state), state.call);
    } else if (!state.waiting) {
      busy.push_back(name_of(state));
    }
  }
  if (!busy.empty())
    text = fmt::format("\n  {} began this call and now does something else", workers_text(busy)) +
           text;
  text = gone_text(gone, "") + silent_text(silent, "") + text;
  if (text.empty())
    text = "\n  all other workers are in this call: the network between them may be at fault";
  return text + outside_text(outside);
}

}  // namespace ballast::comm
