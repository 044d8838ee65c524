// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/communicator_mpi.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ballast/comm/datatype_mpi.h"
#include "ballast/comm/watchdog.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using at::Tensor;

constexpr int64_t kMaxCount = std::numeric_limits<int>::max();

class MpiOperation : public Operation {
 public:
  MpiOperation(std::shared_ptr<MpiRuntime> runtime, std::unique_ptr<MpiTransfer> transfer)
      : runtime_(std::move(runtime)), transfer_(std::move(transfer)) {}
  ~MpiOperation() override {
    if (transfer_ != nullptr) runtime_->adopt(std::move(transfer_));
  }

  void wait() override {
    if (transfer_ == nullptr) return;
    runtime_->wait(*transfer_);
    const auto transfer = std::move(transfer_);
    const at::NoGradGuard no_grad;
    if (transfer->finish) transfer->finish();
  }

  bool done() override { return transfer_ == nullptr || runtime_->test(*transfer_); }

 private:
  std::shared_ptr<MpiRuntime> runtime_;
  std::unique_ptr<MpiTransfer> transfer_;
};

// Host memory of the same shape: pinned for a tensor on a GPU, so that copies are fast.
Tensor host_like(const Tensor& x) {
  return at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(!x.is_cpu()));
}

// The tensor itself if it is on the host, else a copy there; waits for the device.
Tensor on_host(const Tensor& x) { return x.is_cpu() ? x : host_like(x).copy_(x); }

// What MPI can reduce: half precision becomes float32.
Tensor widened(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x;
}

char* address(const Tensor& x) { return static_cast<char*>(x.data_ptr()); }

bool overlap(const Tensor& a, const Tensor& b) {
  return address(a) < address(b) + b.nbytes() && address(b) < address(a) + a.nbytes();
}

void check_countable(const std::vector<int64_t>& counts, const std::string& call) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (total > kMaxCount)
    fail("{}: {} rows are more than MPI can count ({})", call, total, kMaxCount);
}

std::vector<int> counted(const std::vector<int64_t>& blocks, const BlockType& type) {
  std::vector<int> counts;
  for (const int64_t number : blocks) counts.push_back(type.count(number));
  return counts;
}

std::vector<int> starts(const std::vector<int>& counts) {
  std::vector<int> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
  return starts;
}

int64_t block_bytes(int64_t elements, const Tensor& x) {
  return elements * static_cast<int64_t>(x.itemsize());
}

bool all_equal(const std::vector<int64_t>& counts) {
  return std::ranges::count(counts, counts.front()) == std::ssize(counts);
}

// The same on all members, and of no other group.
uint64_t child_group(uint64_t parent, uint64_t call, int color) {
  uint64_t id = parent;
  for (const uint64_t part : {call, static_cast<uint64_t>(color) + 1})
    id = (id ^ part) * 0x9e3779b97f4a7c15u + (id >> 29) + 1;
  return id;
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm,
                                 WorkerGroup group)
    : Communicator(
          [comm] {
            int rank = 0;
            MPI_Comm_rank(comm, &rank);
            return rank;
          }(),
          group.members, group.name),
      runtime_(std::move(runtime)),
      comm_(comm),
      group_(std::make_shared<const WorkerGroup>(std::move(group))) {}

MpiTransfer MpiCommunicator::transfer(const Call& call) {
  MpiTransfer transfer;
  transfer.call = {group_, {group_->id, ++calls_}, call.text()};
  return transfer;
}

// `issue` makes one nonblocking call of MPI with the request it is given, and returns its code.
template <typename Issue>
Pending MpiCommunicator::begin(MpiTransfer transfer, Issue issue) {
  auto begun = runtime_->begin(std::move(transfer), [&](MpiTransfer& started) {
    started.requests.push_back(MPI_REQUEST_NULL);
    MpiRuntime::check(issue(started, &started.requests.back()), started.call.text);
  });
  return Pending(std::make_unique<MpiOperation>(runtime_, std::move(begun)));
}

Pending MpiCommunicator::start_all_reduce(const Call& call, const Tensor& values,
                                          Reduction reduction) {
  const at::NoGradGuard no_grad;
  MpiTransfer started = transfer(call);
  const Tensor work = on_host(widened(values));
  started.kept = {work, values};
  if (!work.is_same(values)) started.finish = [work, values] { values.copy_(work, true); };
  auto begun = runtime_->begin(std::move(started), [&](MpiTransfer& t) {
    const MPI_Op operation = operation_of(reduction, work.scalar_type());
    int64_t done = 0;
    do {  // in pieces that MPI can count; one piece where there is nothing, so that all call alike
      const int64_t count = std::min(work.numel() - done, kMaxCount);
      t.requests.push_back(MPI_REQUEST_NULL);
      char* place = address(work) + done * static_cast<int64_t>(work.itemsize());
      MpiRuntime::check(
          MPI_Iallreduce(MPI_IN_PLACE, place, static_cast<int>(count),
                         element_type(work.scalar_type()), operation, comm_, &t.requests.back()),
          t.call.text);
      done += count;
    } while (done < work.numel());
  });
  return Pending(std::make_unique<MpiOperation>(runtime_, std::move(begun)));
}

Pending MpiCommunicator::start_reduce_scatter(const Call& call, const Tensor& output,
                                              const Tensor& input, Reduction reduction) {
  const at::NoGradGuard no_grad;
  MpiTransfer started = transfer(call);
  if (output.numel() > kMaxCount)
    fail("{}: {} elements for a worker are more than MPI can count", started.call.text,
         output.numel());
  const Tensor in = on_host(widened(input));
  const bool direct =
      output.is_cpu() && output.scalar_type() == in.scalar_type() && !overlap(output, input);
  const Tensor out = direct ? output : at::empty(output.sizes(), in.options());
  started.kept = {in, out, output};
  if (!direct) started.finish = [out, output] { output.copy_(out, true); };
  return begin(std::move(started), [&](MpiTransfer&, MPI_Request* request) {
    return MPI_Ireduce_scatter_block(address(in), address(out), static_cast<int>(out.numel()),
                                     element_type(in.scalar_type()),
                                     operation_of(reduction, in.scalar_type()), comm_, request);
  });
}

Pending MpiCommunicator::start_all_gather(const Call& call, const Tensor& output,
                                          const Tensor& input, Blocks blocks) {
  const at::NoGradGuard no_grad;
  MpiTransfer started = transfer(call);
  const Tensor in = on_host(input), out = output.is_cpu() ? output : host_like(output);
  started.kept = {in, out, input, output};
  if (!out.is_same(output)) started.finish = [out, output] { output.copy_(out, true); };
  check_countable(blocks.counts, started.call.text);
  return begin(std::move(started), [&](MpiTransfer& t, MPI_Request* request) {
    const BlockType type(block_bytes(blocks.unit, in), static_cast<int64_t>(out.nbytes()));
    const std::vector<int> counts = counted(blocks.counts, type);
    t.counts = {counts, starts(counts)};
    const int own = counts[rank()];
    const void* from = overlap(in, out) ? MPI_IN_PLACE : address(in);
    if (all_equal(blocks.counts))
      return MPI_Iallgather(from, own, type, address(out), own, type, comm_, request);
    return MPI_Iallgatherv(from, own, type, address(out), t.counts[0].data(), t.counts[1].data(),
                           type, comm_, request);
  });
}

Pending MpiCommunicator::start_all_to_all(const Call& call, const Tensor& output,
                                          const Tensor& input, Blocks send, Blocks receive) {
  const at::NoGradGuard no_grad;
  MpiTransfer started = transfer(call);
  const Tensor in = on_host(input), out = output.is_cpu() ? output : host_like(output);
  started.kept = {in, out, input, output};
  if (!out.is_same(output)) started.finish = [out, output] { output.copy_(out, true); };
  check_countable(send.counts, started.call.text);
  check_countable(receive.counts, started.call.text);
  return begin(std::move(started), [&](MpiTransfer& t, MPI_Request* request) {
    const BlockType type(block_bytes(send.unit, in),
                         static_cast<int64_t>(std::max(in.nbytes(), out.nbytes())));
    const auto sent = counted(send.counts, type), received = counted(receive.counts, type);
    t.counts = {sent, starts(sent), received, starts(received)};
    // The uneven call for even counts too: who sends unevenly cannot know whether others do.
    return MPI_Ialltoallv(address(in), t.counts[0].data(), t.counts[1].data(), type, address(out),
                          t.counts[2].data(), t.counts[3].data(), type, comm_, request);
  });
}

Pending MpiCommunicator::start_broadcast(const Call& call, const Tensor& values, int root) {
  const at::NoGradGuard no_grad;
  MpiTransfer started = transfer(call);
  const Tensor work = on_host(values);
  started.kept = {work, values};
  if (!work.is_same(values) && root != rank())
    started.finish = [work, values] { values.copy_(work, true); };
  return begin(std::move(started), [&](MpiTransfer&, MPI_Request* request) {
    const auto bytes = static_cast<int64_t>(work.nbytes());
    const BlockType type(bytes, bytes);
    return MPI_Ibcast(address(work), type.count(1), type, root, comm_, request);
  });
}

Pending MpiCommunicator::start_barrier(const Call& call) {
  return begin(transfer(call),
               [&](MpiTransfer&, MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
}

std::unique_ptr<Communicator> MpiCommunicator::start_split(int color, int key,
                                                           const std::string& name) {
  // Exchanged by a call with a deadline, after which all are here: MPI_Comm_split has none.
  const Tensor own = at::empty({3}, at::kLong), all = at::empty({size(), 3}, at::kLong);
  auto* mine = own.mutable_data_ptr<int64_t>();
  mine[0] = color;
  mine[1] = key;
  mine[2] = runtime_->rank();
  all_gather(all, own, {"split"});
  WorkerGroup group{child_group(group_->id, calls_, color), name, {}};
  const auto* rows = all.const_data_ptr<int64_t>();
  std::vector<std::pair<int64_t, int>> by_key;
  for (int i = 0; i < size(); ++i) {
    if (rows[3 * i] == color)
      by_key.emplace_back(rows[3 * i + 1], static_cast<int>(rows[3 * i + 2]));
  }
  std::ranges::stable_sort(by_key, {}, &std::pair<int64_t, int>::first);
  for (const auto& [own_key, worker] : by_key) group.members.push_back(worker);
  MPI_Comm part = MPI_COMM_NULL;
  const std::lock_guard lock(runtime_->mutex());
  const Watchdog watchdog("a split of the workers", runtime_->roll_call()->deadline_seconds());
  MpiRuntime::check(MPI_Comm_split(comm_, color, key, &part), "split into " + name);
  MpiRuntime::check(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "split into " + name);
  return std::make_unique<MpiCommunicator>(runtime_, part, std::move(group));
}

}  // namespace ballast::comm
