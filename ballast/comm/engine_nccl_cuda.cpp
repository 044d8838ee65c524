// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ballast/comm/nccl_plugin.h"
#include "ballast/comm/runtime_nccl_cuda.h"
#include "ballast/comm/tensor_text.h"
#include "ballast/system/checksum.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using at::Tensor;

class NcclOperation : public Operation {
 public:
  NcclOperation(std::shared_ptr<NcclRuntime> runtime, std::shared_ptr<NcclTransfer> transfer)
      : runtime_(std::move(runtime)), transfer_(std::move(transfer)) {}

  void wait() override { runtime_->wait(*transfer_); }
  bool done() override { return NcclRuntime::done(*transfer_); }

 private:
  std::shared_ptr<NcclRuntime> runtime_;
  std::shared_ptr<NcclTransfer> transfer_;
};

// Calls that belong together; they begin with end().
class CallGroup {
 public:
  explicit CallGroup(const NcclLibrary& nccl) : nccl_(nccl) { nccl_.group_start(); }
  ~CallGroup() {
    if (!ended_) nccl_.group_end();
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  int end() {
    ended_ = true;
    return nccl_.group_end();
  }

 private:
  const NcclLibrary& nccl_;
  bool ended_ = false;
};

char* address(const Tensor& x) { return static_cast<char*>(x.data_ptr()); }

// NCCL adds half precision in half precision, and takes the other number for a NaN: both are
// reduced here, by whoever gets the block.
bool nccl_can_reduce(Reduction reduction, at::ScalarType type) {
  if (type == at::kHalf || type == at::kBFloat16) return false;
  return reduction == Reduction::kSum || !at::isFloatingType(type);
}

// blocks [N, n] of all workers to [n].
Tensor reduced(const Tensor& blocks, Reduction reduction) {
  if (reduction == Reduction::kMax) return blocks.amax(0);
  return at::sum(blocks, {0}, false, at::kFloat).to(blocks.scalar_type());
}

// A group's tensors from GPU to GPU.
class NcclEngine : public GpuEngine {
 public:
  NcclEngine(std::shared_ptr<NcclRuntime> runtime, Communicator& host)
      : runtime_(std::move(runtime)), rank_(host.rank()), size_(host.size()) {
    connect(host);
  }

  std::unique_ptr<GpuEngine> split(Communicator& part) override {
    return std::make_unique<NcclEngine>(runtime_, part);
  }
  void finish() override { runtime_->finish(); }
  void record(const Call& call, const std::function<void()>& work) override {
    runtime_->record(next_call(call), work);
  }
  void replay(const Call& call, const std::function<void()>& work) override {
    runtime_->replay(next_call(call), work);
  }

  Pending start_all_reduce(const Call& call, const Tensor& values, Reduction reduction) override;
  Pending start_reduce_scatter(const Call& call, const Tensor& output, const Tensor& input,
                               Reduction reduction) override;
  Pending start_all_gather(const Call& call, const Tensor& output, const Tensor& input,
                           Blocks blocks) override;
  Pending start_all_to_all(const Call& call, const Tensor& output, const Tensor& input, Blocks send,
                           Blocks receive) override;
  Pending start_broadcast(const Call& call, const Tensor& values, int root) override;

 private:
  void connect(Communicator& host);
  template <typename Issue>
  Pending begin(const Call& call, std::vector<Tensor> tensors, Issue issue);
  CallRecord next_call(const Call& call) { return {group_, {group_->id, ++calls_}, call.text()}; }
  void check(int result, const Call& call) const { runtime_->check(result, call.text()); }
  // Bytes of each block: sent[r] to worker r, received[r] from it.
  void exchange(const Call& call, const Tensor& output, const Tensor& input,
                const std::vector<int64_t>& sent, const std::vector<int64_t>& received,
                cudaStream_t stream) const;
  // The blocks of all workers, [N, n], that are for this one.
  Tensor collected(const Call& call, const Tensor& input, cudaStream_t stream) const;
  void all_reduce_here(const Call& call, const Tensor& values, Reduction reduction,
                       cudaStream_t stream) const;

  const std::shared_ptr<NcclRuntime> runtime_;
  const int rank_, size_;
  const NcclLibrary& nccl_ = nccl_library();
  std::shared_ptr<const WorkerGroup> group_;
  NcclComm comm_ = nullptr;  // the runtime's
  uint64_t calls_ = 0;
};

void NcclEngine::connect(Communicator& host) {
  NcclId id;
  const Tensor shared = at::zeros({static_cast<int64_t>(id.bytes.size())}, at::kByte);
  if (rank_ == 0) {
    runtime_->check(nccl_.get_unique_id(&id), "its start");
    std::memcpy(shared.mutable_data_ptr(), id.bytes.data(), id.bytes.size());
  }
  host.broadcast(shared, 0, {"NCCL's start"});
  std::memcpy(id.bytes.data(), shared.const_data_ptr(), id.bytes.size());
  WorkerGroup group{
      checksum({reinterpret_cast<const std::byte*>(id.bytes.data()), id.bytes.size()}),
      host.name() + ", on GPUs", host.members()};
  group_ = std::make_shared<const WorkerGroup>(std::move(group));
  const CallRecord start{group_, {group_->id, ++calls_}, "NCCL's start"};
  runtime_->roll_call().began(start);
  comm_ = runtime_->connect(id, rank_, size_, start);
}

template <typename Issue>
Pending NcclEngine::begin(const Call& call, std::vector<Tensor> tensors, Issue issue) {
  for (const Tensor& tensor : tensors) {
    if (tensor.device() != runtime_->device())
      fail("{}: {} is not on this worker's GPU, {}", describe(call.name, call.label),
           tensor_text(tensor), runtime_->device().str());
  }
  // What is recorded is no call yet. So workers number the calls that run alike, whether or not
  // they could record.
  CallRecord record = runtime_->is_recording() ? CallRecord{} : next_call(call);
  auto begun = runtime_->begin(std::move(record), std::move(tensors), issue);
  return Pending(std::make_unique<NcclOperation>(runtime_, std::move(begun)));
}

void NcclEngine::exchange(const Call& call, const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& sent, const std::vector<int64_t>& received,
                          cudaStream_t stream) const {
  const char* from = address(input);
  char* to = address(output);
  CallGroup group(nccl_);
  for (int r = 0; r < size_; ++r) {
    const auto out = static_cast<size_t>(sent[r]), in = static_cast<size_t>(received[r]);
    if (r == rank_) {
      if (in > 0) C10_CUDA_CHECK(cudaMemcpyAsync(to, from, in, cudaMemcpyDeviceToDevice, stream));
    } else {
      if (out > 0) check(nccl_.send(from, out, kNcclBytes, r, comm_, stream), call);
      if (in > 0) check(nccl_.recv(to, in, kNcclBytes, r, comm_, stream), call);
    }
    from += out;
    to += in;
  }
  check(group.end(), call);
}

Tensor NcclEngine::collected(const Call& call, const Tensor& input, cudaStream_t stream) const {
  const int64_t block = input.numel() / size_;
  const Tensor blocks = at::empty({size_, block}, input.options());
  const std::vector<int64_t> bytes(size_, block * static_cast<int64_t>(input.itemsize()));
  exchange(call, blocks, input, bytes, bytes, stream);
  return blocks;
}

// As much traffic as NCCL's own: each reduces one block for all.
void NcclEngine::all_reduce_here(const Call& call, const Tensor& values, Reduction reduction,
                                 cudaStream_t stream) const {
  const int64_t count = values.numel(), block = (count + size_ - 1) / size_;
  const Tensor flat = values.view({-1});
  Tensor whole = flat;
  if (block * size_ != count) {
    whole = at::zeros({block * size_}, values.options());
    whole.slice(0, 0, count).copy_(flat);
  }
  const Tensor own = reduced(collected(call, whole, stream), reduction);
  check(nccl_.all_gather(address(own), address(whole), own.nbytes(), kNcclBytes, comm_, stream),
        call);
  if (!whole.is_same(flat)) flat.copy_(whole.slice(0, 0, count));
}

Pending NcclEngine::start_all_reduce(const Call& call, const Tensor& values, Reduction reduction) {
  return begin(call, {values}, [&](cudaStream_t stream) {
    if (values.numel() == 0) return;
    if (!nccl_can_reduce(reduction, values.scalar_type()))
      return all_reduce_here(call, values, reduction, stream);
    check(
        nccl_.all_reduce(address(values), address(values), static_cast<size_t>(values.numel()),
                         nccl_type(values.scalar_type()), nccl_operation(reduction), comm_, stream),
        call);
  });
}

Pending NcclEngine::start_reduce_scatter(const Call& call, const Tensor& output,
                                         const Tensor& input, Reduction reduction) {
  return begin(call, {output, input}, [&](cudaStream_t stream) {
    if (output.numel() == 0) return;
    if (!nccl_can_reduce(reduction, input.scalar_type())) {
      output.view({-1}).copy_(reduced(collected(call, input, stream), reduction));
      return;
    }
    check(nccl_.reduce_scatter(address(input), address(output), static_cast<size_t>(output.numel()),
                               nccl_type(input.scalar_type()), nccl_operation(reduction), comm_,
                               stream),
          call);
  });
}

Pending NcclEngine::start_all_gather(const Call& call, const Tensor& output, const Tensor& input,
                                     Blocks blocks) {
  return begin(call, {output, input}, [&](cudaStream_t stream) {
    const auto row = static_cast<int64_t>(input.itemsize()) * blocks.unit;
    if (std::ranges::count(blocks.counts, blocks.counts.front()) == size_) {
      const auto bytes = static_cast<size_t>(row * blocks.counts.front());
      if (bytes == 0) return;
      return check(
          nccl_.all_gather(address(input), address(output), bytes, kNcclBytes, comm_, stream),
          call);
    }
    CallGroup group(nccl_);
    char* to = address(output);
    for (int r = 0; r < size_; ++r) {
      const auto bytes = static_cast<size_t>(row * blocks.counts[r]);
      const char* from = r == rank_ ? address(input) : to;
      if (bytes > 0) check(nccl_.broadcast(from, to, bytes, kNcclBytes, r, comm_, stream), call);
      to += bytes;
    }
    check(group.end(), call);
  });
}

Pending NcclEngine::start_all_to_all(const Call& call, const Tensor& output, const Tensor& input,
                                     Blocks send, Blocks receive) {
  const auto row = static_cast<int64_t>(input.itemsize()) * send.unit;
  for (auto* counts : {&send.counts, &receive.counts}) {
    for (int64_t& count : *counts) count *= row;
  }
  return begin(call, {output, input}, [&](cudaStream_t stream) {
    exchange(call, output, input, send.counts, receive.counts, stream);
  });
}

Pending NcclEngine::start_broadcast(const Call& call, const Tensor& values, int root) {
  return begin(call, {values}, [&](cudaStream_t stream) {
    if (values.numel() == 0) return;
    check(nccl_.broadcast(address(values), address(values), values.nbytes(), kNcclBytes, root,
                          comm_, stream),
          call);
  });
}

}  // namespace
}  // namespace ballast::comm

void ballast_describe_gpu(at::Device device, ballast::comm::GpuDescription& description) {
  cudaDeviceProp properties{};
  description.gpu = device.str();
  if (cudaGetDeviceProperties(&properties, device.index()) == cudaSuccess) {
    description.gpu.clear();
    for (const char byte : properties.uuid.bytes)
      description.gpu += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  description.trouble.clear();
  try {
    description.version = ballast::comm::nccl_version();
  } catch (const ballast::UserError& error) {
    description.trouble = error.what();
  }
}

void ballast_open_nccl_engine(const ballast::comm::NcclRequest& request,
                              std::unique_ptr<ballast::comm::GpuEngine>& engine) {
  auto runtime = std::make_shared<ballast::comm::NcclRuntime>(request.roll_call, request.device);
  engine = std::make_unique<ballast::comm::NcclEngine>(std::move(runtime), request.host);
}
