// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ballast/comm/nccl_library_cuda.h"
#include "ballast/comm/roll_call.h"

namespace ballast::comm {

// A collective that NCCL works on, and all that must live as long.
struct NcclTransfer {
  CallRecord call;
  std::vector<at::Tensor> kept;
  c10::Event reached{at::kCUDA}, ended{at::kCUDA};  // by the device
  std::atomic<bool> queued = false;                 // the events can be asked
  bool recorded = false;  // part of a graph: its events are the graph's, and nobody may ask them
  // Of the watchdog's:
  std::optional<Patience> patience;
  double waited = 0;
};

// What all NCCL communicators of a process share. One stream, on which calls of all groups follow
// each other as they were begun: calls at the same time on one GPU can block each other. And a
// watchdog, a thread that finds out who is missing: nobody else waits for the device.
class NcclRuntime {
 public:
  NcclRuntime(std::shared_ptr<RollCall> roll_call, at::Device device);
  // Does not wait for other workers.
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  // Connects the workers of a group, which all call it. `start` names it in messages.
  NcclComm connect(const NcclId& id, int rank, int size, const CallRecord& start);
  // Begins a collective: calls `issue` with the stream that it should use, which is then the
  // current one. It comes after what is now queued on the caller's stream. Where that is being
  // recorded, so is the collective.
  std::shared_ptr<NcclTransfer> begin(CallRecord call, std::vector<at::Tensor> kept,
                                      const std::function<void(cudaStream_t)>& issue);
  // Lets what the caller queues next come after the transfer.
  void wait(NcclTransfer& transfer) const;
  // Whether the device has ended it; never true of a recorded one.
  static bool done(const NcclTransfer& transfer);
  // Communicator's functions of these names, as one call that is watched: NCCL may wait for other
  // workers also while it is recorded.
  void record(CallRecord call, const std::function<void()>& work);
  void replay(CallRecord call, const std::function<void()>& work);
  // Returns when the device has ended all that was begun.
  void finish();

  // Whether the caller's stream is being recorded.
  bool is_recording() const;

  at::Device device() const { return device_; }
  RollCall& roll_call() const { return *roll_call_; }
  // Throws WorkersLost for a result that is no success.
  void check(int result, const std::string& call) const;

 private:
  void watch();
  // The transfer that the device is at; those that have ended are let go. Null: none.
  std::shared_ptr<NcclTransfer> front();
  // Counts `seconds` more that the device has been in the transfer; whether it waits there.
  bool look(NcclTransfer& transfer, double seconds);
  void look_for_errors(const NcclTransfer* transfer);
  // Ends all communicators: kernels that wait for other workers return. Waits until graphs with
  // calls of theirs are gone.
  void abort_all();
  // Writes down that a call begins, watches it from now on, and does `work`. If that throws, the
  // call is watched no more.
  std::shared_ptr<NcclTransfer> watched(CallRecord call,
                                        const std::function<void(NcclTransfer&)>& work);
  void forget(const std::shared_ptr<NcclTransfer>& transfer);
  // `issue` and the transfer's events, on our stream.
  void queue(NcclTransfer& transfer, const std::function<void(cudaStream_t)>& issue) const;

  const std::shared_ptr<RollCall> roll_call_;
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
  std::timed_mutex calls_mutex_;  // held while NCCL is called, which may wait for other workers
  std::mutex mutex_;              // of what follows
  std::deque<std::shared_ptr<NcclTransfer>> transfers_;  // in the order of the device
  std::vector<NcclComm> comms_;
  std::atomic<bool> stop_ = false;
  std::thread watchdog_;
};

}  // namespace ballast::comm
