// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/runtime_nccl_cuda.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "ballast/comm/quiet_thread.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick(20);
constexpr double kLongestTurn = 0.25;  // a turn that took longer was spent stopped

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::min(std::chrono::duration<double>(to - from).count(), kLongestTurn);
}

}  // namespace

NcclRuntime::NcclRuntime(std::shared_ptr<RollCall> roll_call, at::Device device)
    : roll_call_(std::move(roll_call)),
      device_(device),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {
  watchdog_ = quiet_thread([this] { watch(); });
}

NcclRuntime::~NcclRuntime() {
  stop_ = true;
  watchdog_.join();
  abort_all();
}

void NcclRuntime::check(int result, const std::string& call) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  roll_call_->check();  // the watchdog may know better
  throw WorkersLost(fmt::format("worker {} of {}: NCCL failed in {}: {}", roll_call_->rank(),
                                roll_call_->size(), call, nccl_error_text(result)));
}

NcclComm NcclRuntime::connect(const NcclId& id, int rank, int size, const CallRecord& start) {
  struct Outcome {
    int result;
    NcclComm comm;
    std::string text;
  };
  // In a thread of its own, which is left behind if others do not come: nothing can end it.
  std::promise<Outcome> promise;
  std::future<Outcome> outcome = promise.get_future();
  std::thread([id, rank, size, index = device_.index(), promise = std::move(promise)]() mutable {
    cudaSetDevice(index);
    Outcome outcome{0, nullptr, ""};
    outcome.result = nccl_library().comm_init_rank(&outcome.comm, size, id, rank);
    if (outcome.result != kNcclSuccess) outcome.text = nccl_error_text(outcome.result);
    promise.set_value(std::move(outcome));
  }).detach();
  roll_call_->waits(true);
  Patience patience(*roll_call_, start);
  double waited = 0;
  for (Clock::time_point last = Clock::now();
       outcome.wait_for(kTick) != std::future_status::ready;) {
    const Clock::time_point now = Clock::now();
    waited += seconds_between(last, now);
    last = now;
    patience.waited(waited);
    roll_call_->check();
  }
  roll_call_->waits(false);
  const Outcome got = outcome.get();
  if (got.result != kNcclSuccess)
    fail("NCCL could not connect the workers ({}): {}", start.group->name, got.text);
  const std::lock_guard lock(mutex_);
  comms_.push_back(got.comm);
  return got.comm;
}

bool NcclRuntime::is_recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(device_.index()), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::shared_ptr<NcclTransfer> NcclRuntime::watched(CallRecord call,
                                                   const std::function<void(NcclTransfer&)>& work) {
  auto transfer = std::make_shared<NcclTransfer>();
  transfer->call = std::move(call);
  {
    const std::lock_guard lock(mutex_);
    roll_call_->began(transfer->call);
    transfers_.push_back(transfer);
  }
  try {
    work(*transfer);
  } catch (...) {
    forget(transfer);
    throw;
  }
  return transfer;
}

void NcclRuntime::forget(const std::shared_ptr<NcclTransfer>& transfer) {
  const std::lock_guard lock(mutex_);
  std::erase(transfers_, transfer);
}

void NcclRuntime::queue(NcclTransfer& transfer,
                        const std::function<void(cudaStream_t)>& issue) const {
  const at::NoGradGuard no_grad;
  c10::Event ready(at::kCUDA);
  ready.record(c10::cuda::getCurrentCUDAStream(device_.index()));
  ready.block(stream_);  // which a recording takes in by this
  transfer.reached.record(stream_);
  const c10::cuda::CUDAStreamGuard on_stream(stream_);
  issue(stream_.stream());
  transfer.ended.record(stream_);
}

std::shared_ptr<NcclTransfer> NcclRuntime::begin(CallRecord call, std::vector<at::Tensor> kept,
                                                 const std::function<void(cudaStream_t)>& issue) {
  roll_call_->check();
  const c10::cuda::CUDAGuard device(device_);
  const std::lock_guard turn(calls_mutex_);
  if (is_recording()) {  // the recording as a whole is watched
    auto transfer = std::make_shared<NcclTransfer>();
    transfer->kept = std::move(kept);
    transfer->recorded = true;
    queue(*transfer, issue);
    return transfer;
  }
  auto transfer = watched(std::move(call), [&](NcclTransfer& begun) {
    begun.kept = std::move(kept);
    queue(begun, issue);
  });
  transfer->queued = true;
  front();  // lets go of those that have ended
  return transfer;
}

bool NcclRuntime::done(const NcclTransfer& transfer) {
  return !transfer.recorded && transfer.ended.query();
}

void NcclRuntime::record(CallRecord call, const std::function<void()>& work) {
  roll_call_->check();
  forget(watched(std::move(call), [&](NcclTransfer&) { work(); }));
}

void NcclRuntime::replay(CallRecord call, const std::function<void()>& work) {
  roll_call_->check();
  const c10::cuda::CUDAGuard device(device_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
  const std::lock_guard turn(calls_mutex_);
  const auto transfer = watched(std::move(call), [&](NcclTransfer& replayed) {
    c10::Event before(at::kCUDA);  // calls follow each other, also those that nobody waits for
    before.record(stream_);
    before.block(stream);
    replayed.reached.record(stream);
    work();
    replayed.ended.record(stream);
    replayed.ended.block(stream_);
  });
  transfer->queued = true;
  front();
}

void NcclRuntime::wait(NcclTransfer& transfer) const {
  roll_call_->check();
  const c10::cuda::CUDAGuard device(device_);
  transfer.ended.block(c10::cuda::getCurrentCUDAStream(device_.index()));
  // Whoever gets this memory next uses it on the caller's stream, or waits for that.
  transfer.kept.clear();
}

void NcclRuntime::finish() {
  while (front() != nullptr) {
    std::this_thread::sleep_for(milliseconds(1));
    roll_call_->check();
  }
}

std::shared_ptr<NcclTransfer> NcclRuntime::front() {
  const std::lock_guard lock(mutex_);
  while (!transfers_.empty() && transfers_.front()->queued && transfers_.front()->ended.query())
    transfers_.pop_front();
  return transfers_.empty() ? nullptr : transfers_.front();
}

void NcclRuntime::watch() {
  cudaSetDevice(device_.index());
  // Asking for events here must not spoil a graph that another thread records.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  Clock::time_point last = Clock::now();
  bool waiting = false;
  try {
    while (!stop_) {
      std::this_thread::sleep_for(kTick);
      const Clock::time_point now = Clock::now();
      const auto transfer = front();
      const bool waits = transfer != nullptr && look(*transfer, seconds_between(last, now));
      if (waits || waiting) roll_call_->waits(waits);
      waiting = waits;
      look_for_errors(transfer.get());
      last = now;
    }
  } catch (const std::exception& error) {
    roll_call_->lose(error.what());
    abort_all();
  }
}

bool NcclRuntime::look(NcclTransfer& transfer, double seconds) {
  constexpr double kLong = 0.5;
  // Before, the device is busy with what was queued earlier.
  if (transfer.queued && !transfer.reached.query()) return false;
  transfer.waited += seconds;
  if (!transfer.patience) transfer.patience.emplace(*roll_call_, transfer.call);
  transfer.patience->waited(transfer.waited);
  return transfer.waited > kLong;
}

void NcclRuntime::look_for_errors(const NcclTransfer* transfer) {
  const std::lock_guard lock(mutex_);
  for (NcclComm comm : comms_) {
    int error = kNcclSuccess;
    nccl_library().comm_get_async_error(comm, &error);
    if (error == kNcclSuccess || error == kNcclInProgress) continue;
    const std::string where = transfer == nullptr ? "between calls" : "in " + transfer->call.text;
    throw WorkersLost(fmt::format("worker {} of {}: NCCL failed {}: {}{}", roll_call_->rank(),
                                  roll_call_->size(), where, nccl_error_text(error),
                                  transfer == nullptr ? "" : roll_call_->missing(transfer->call)));
  }
}

void NcclRuntime::abort_all() {
  // Whoever is in a call may be stuck there, and comes out when its communicator is aborted;
  // otherwise nobody must be in one.
  const std::unique_lock turn(calls_mutex_, std::chrono::seconds(1));
  std::vector<NcclComm> comms;
  {
    const std::lock_guard lock(mutex_);
    comms = std::exchange(comms_, {});
  }
  // At once: each waits for graphs to go, in which kernels of another may hang.
  std::vector<std::thread> threads;
  for (NcclComm comm : comms) {
    threads.emplace_back([comm, index = device_.index()] {
      cudaSetDevice(index);
      nccl_library().comm_abort(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ballast::comm
