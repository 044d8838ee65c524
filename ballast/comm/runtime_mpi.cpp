// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/runtime_mpi.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "ballast/comm/settings_mpi.h"
#include "ballast/comm/watchdog.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kAddressBytes = 512;

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> message{};
  int length = 0;
  MPI_Error_string(code, message.data(), &length);
  return message.data();
}

// The texts of all workers, in their order.
std::vector<std::string> gather_texts(const std::string& own, int size) {
  std::array<char, kAddressBytes> sent{};
  std::memcpy(sent.data(), own.data(), std::min(own.size(), kAddressBytes - 1));
  std::vector<char> all(kAddressBytes * static_cast<size_t>(size));
  MpiRuntime::check(MPI_Allgather(sent.data(), kAddressBytes, MPI_CHAR, all.data(), kAddressBytes,
                                  MPI_CHAR, MPI_COMM_WORLD),
                    "the start of the workers");
  std::vector<std::string> texts;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i)
    texts.emplace_back(&all[i * kAddressBytes]);
  return texts;
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Lets others compute while this worker waits, and returns for how many seconds they did.
double give_way() {
  const Clock::time_point begin = Clock::now();
  ::sched_yield();
  return seconds_between(begin, Clock::now());
}

// A twentieth of the time that this worker has waited.
void nap(double waited) {
  constexpr double kShare = 0.05, kShortest = 20e-6, kLongest = 0.5e-3;
  const double seconds = std::clamp(waited * kShare, kShortest, kLongest);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Where a machine has fewer cores than workers, those that only give way take a large part of them.
// A worker may be bound to a core, so the machine is asked for all that it has.
double seconds_to_give_way(const PlaceOnMachine& place) {
  static const int cores = ::get_nprocs();
  return place.workers > cores ? 0.5e-3 : 20e-3;
}

}  // namespace

void MpiRuntime::check(int code, const std::string& text) {
  if (code != MPI_SUCCESS) fail("MPI failed in {}: {}", text, error_text(code));
}

MpiRuntime::MpiRuntime(const WorldOptions& options) {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) fail("MPI was started before in this process: a process has one world");
  choose_settings();
  const Watchdog watchdog("the start of the workers", options.deadline_seconds);
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "its start");
  if (provided < MPI_THREAD_SERIALIZED)
    fail("this MPI cannot be used by several threads in turn: it must be built with threads");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  roll_call_ = std::make_shared<RollCall>(rank, size, options.deadline_seconds);
  if (size > 1) open_roll_call();
  // On one machine a message is a copy, for which somebody's core must be taken anyway.
  if (place_.workers < size) mover_ = std::make_unique<MessageMover>(mutex_);
}

void MpiRuntime::open_roll_call() {
  uint64_t secret = 0;
  if (rank() == 0) {
    std::random_device random;
    secret = (uint64_t{random()} << 32) | random();
  }
  check(MPI_Bcast(&secret, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD), "the start of the workers");
  const auto machines = gather_texts(machine_identity(), size());
  const auto own = machines.begin() + rank();
  place_.index = static_cast<int>(std::count(machines.begin(), own, *own));
  place_.workers = static_cast<int>(std::count(machines.begin(), machines.end(), *own));
  const bool one_machine = place_.workers == size();
  auto arrivals = std::make_unique<Arrivals>(rank(), secret,
                                             one_machine ? Reach::kThisMachine : Reach::kNetwork);
  arrivals->meet(gather_texts(arrivals->address(), size()));
  // Each asks the next. Where even that fails, nobody may be called missing later.
  const int next = (rank() + 1) % size();
  const auto answers = arrivals->ask({&next, 1}, {}, milliseconds(3000));
  int works = answers.front().answer == WorkerState::Answer::kAnswered;
  check(MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
        "the start of the workers");
  std::vector<std::string> names;  // the first word of each identity
  for (const std::string& machine : machines) names.push_back(machine.substr(0, machine.find(' ')));
  roll_call_->open(std::move(arrivals), works != 0,
                   one_machine ? std::vector<std::string>{} : std::move(names));
}

std::unique_ptr<MpiTransfer> MpiRuntime::begin(MpiTransfer transfer,
                                               const std::function<void(MpiTransfer&)>& issue) {
  roll_call_->check();
  auto begun = std::make_unique<MpiTransfer>(std::move(transfer));
  const std::lock_guard lock(mutex_);
  std::erase_if(adopted_, [&](const auto& old) {
    look_at(*old);
    return old->code.has_value();
  });
  roll_call_->began(begun->call);
  issue(*begun);
  if (mover_ != nullptr) mover_->began();
  return begun;
}

void MpiRuntime::look_at(MpiTransfer& transfer) {
  if (transfer.code) return;
  int ended = 0;
  const int code = MPI_Testall(static_cast<int>(transfer.requests.size()), transfer.requests.data(),
                               &ended, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS && ended == 0) return;
  transfer.code = code;
  if (mover_ != nullptr) mover_->ended();
}

bool MpiRuntime::test(MpiTransfer& transfer) {
  const std::lock_guard lock(mutex_);
  look_at(transfer);
  if (transfer.code.value_or(MPI_SUCCESS) != MPI_SUCCESS) {
    const CallRecord& call = transfer.call;
    throw WorkersLost(
        fmt::format("worker {} of {}: MPI failed in {} (call {} of {}): {}; sizes may not fit{}",
                    rank(), size(), call.text, call.number.number, call.group->name,
                    error_text(*transfer.code), roll_call_->missing(call)));
  }
  return transfer.code.has_value();
}

void MpiRuntime::wait(MpiTransfer& transfer) {
  constexpr double kLongestTurn = 0.25, kLongWay = 0.5e-3;
  if (test(transfer)) return;
  // Both stay true of a worker that gives up: it does nothing else any more.
  roll_call_->waits(true);
  if (mover_ != nullptr) mover_->waits(true);
  Patience patience(*roll_call_, transfer.call);
  const double gives_way = seconds_to_give_way(place_);
  double waited = 0;
  int long_ways = 0;
  for (Clock::time_point last = Clock::now(); !test(transfer);) {
    if (waited >= gives_way || last < shares_core_until_.load()) {
      nap(waited);
    } else if (give_way() > kLongWay && ++long_ways == 2) {
      // Who gives way waits until the other's turn ends, milliseconds each time; a sleeper is woken
      // soon. Once may be chance. After a while it is tried again.
      shares_core_until_ = Clock::now() + std::chrono::seconds(1);
    }
    const Clock::time_point now = Clock::now();
    // A turn that took longer was spent stopped: that is not the others' fault.
    waited += std::min(seconds_between(last, now), kLongestTurn);
    last = now;
    patience.waited(waited);
    roll_call_->check();
  }
  if (mover_ != nullptr) mover_->waits(false);
  roll_call_->waits(false);
}

void MpiRuntime::adopt(std::unique_ptr<MpiTransfer> transfer) {
  const std::lock_guard lock(mutex_);
  adopted_.push_back(std::move(transfer));
}

void MpiRuntime::stop_mover() {
  if (mover_ != nullptr) mover_->stop();
}

void MpiRuntime::finalize() {
  for (const auto& transfer : adopted_) wait(*transfer);
  adopted_.clear();
  stop_mover();
  const std::lock_guard lock(mutex_);
  if (mover_ != nullptr) mover_->forget();
  const Watchdog watchdog("the end of the workers", roll_call_->deadline_seconds());
  check(MPI_Finalize(), "its end");
}

}  // namespace ballast::comm
