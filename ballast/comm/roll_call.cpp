// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "ballast/comm/communicator.h"
#include "ballast/comm/missing.h"

namespace ballast::comm {
namespace {

using std::chrono::milliseconds;

constexpr double kLookEvery = 2;  // seconds between looks for a worker that has ended

}  // namespace

RollCall::RollCall(int rank, int size, double deadline_seconds)
    : rank_(rank), size_(size), deadline_seconds_(deadline_seconds) {}

void RollCall::open(std::unique_ptr<Arrivals> arrivals, bool works,
                    std::vector<std::string> machines) {
  machines_ = std::move(machines);
  arrivals_ = std::move(arrivals);
  works_ = works;
}

void RollCall::began(const CallRecord& call) {
  if (arrivals_) arrivals_->began(call.number, call.text);
}

void RollCall::waits(bool waiting) {
  if (arrivals_) arrivals_->waits(waiting);
}

std::pair<std::vector<int>, size_t> RollCall::others(const WorkerGroup& group) const {
  std::vector<int> others;
  for (const int member : group.members) {
    if (member != rank_) others.push_back(member);
  }
  const size_t members = others.size();
  for (int worker = 0; worker < size_; ++worker) {
    if (std::ranges::find(group.members, worker) == group.members.end()) others.push_back(worker);
  }
  return {others, members};
}

bool RollCall::is_gone(const CallRecord& call) const {
  if (!works_) return false;
  const auto [workers, members] = others(*call.group);
  const auto states =
      arrivals_->ask(std::span(workers).first(members), call.number, milliseconds(100));
  return std::ranges::any_of(
      states, [](const auto& state) { return state.answer == WorkerState::Answer::kGone; });
}

std::string RollCall::missing(const CallRecord& call) const {
  if (size_ == 1) return "";
  if (!works_)
    return "\n  who is missing is not known: workers could not reach each other by UDP at the "
           "start";
  const auto [workers, members] = others(*call.group);
  auto states = arrivals_->ask(workers, call.number, milliseconds(1000));
  for (WorkerState& state : states) {
    if (!machines_.empty()) state.machine = machines_[static_cast<size_t>(state.worker)];
  }
  const std::span<const WorkerState> all = states;
  return missing_text(all.first(members), call.text, all.subspan(members));
}

void RollCall::lose(std::string message) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = std::move(message);
}

void RollCall::check() const {
  const std::lock_guard lock(mutex_);
  if (lost_) throw WorkersLost(*lost_);
}

Patience::Patience(const RollCall& roll_call, const CallRecord& call)
    : roll_call_(roll_call), call_(call), next_look_(kLookEvery) {}

void Patience::waited(double seconds) {
  if (seconds > roll_call_.deadline_seconds()) give_up(seconds, "the deadline");
  if (seconds < next_look_) return;
  next_look_ = seconds + kLookEvery;
  // Twice, since one that has ended well may have left all we need to end this call too.
  times_gone_ = roll_call_.is_gone(call_) ? times_gone_ + 1 : 0;
  if (times_gone_ == 2) give_up(seconds, "a worker has ended");
}

void Patience::give_up(double seconds, const char* why) const {
  throw WorkersLost(fmt::format(
      "worker {} of {} gave up after waiting {:.1f} seconds ({}) in {} (call {} of {}){}",
      roll_call_.rank(), roll_call_.size(), seconds, why, call_.text, call_.number.number,
      call_.group->name, roll_call_.missing(call_)));
}

}  // namespace ballast::comm
