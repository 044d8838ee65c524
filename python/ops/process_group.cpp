// SPDX-License-Identifier: Apache-2.0
#include "python/ops/process_group.h"

#include <ATen/core/Tensor.h>

#include <numeric>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "ballast/comm/single.h"

namespace ballast::python {
namespace {

using at::Tensor;

class WorkOperation : public comm::Operation {
 public:
  WorkOperation(c10::intrusive_ptr<c10d::Work> work, std::vector<Tensor> tensors)
      : work_(std::move(work)), tensors_(std::move(tensors)) {}
  void wait() override { work_->wait(); }
  bool done() override { return work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<Tensor> tensors_;  // are kept until it has ended
};

comm::Pending pending(c10::intrusive_ptr<c10d::Work> work, std::vector<Tensor> tensors) {
  return comm::Pending(std::make_unique<WorkOperation>(std::move(work), std::move(tensors)));
}

std::vector<int> numbers_up_to(int size) {
  std::vector<int> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Rows are moved as bytes: backends know few types.
Tensor bytes_of(const Tensor& x) { return x.view({-1}).view(at::kByte); }

[[noreturn]] void refuse(const char* call) {
  throw std::logic_error(std::string("a layer of experts has no use for ") + call);
}

class ProcessGroupCommunicator : public comm::Communicator {
 public:
  ProcessGroupCommunicator(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::string& name)
      : Communicator(group->getRank(), numbers_up_to(group->getSize()), name),
        group_(std::move(group)) {}

 protected:
  comm::Pending start_all_reduce(const Call&, const Tensor& values,
                                 comm::Reduction reduction) override {
    std::vector<Tensor> tensors = {values};
    c10d::AllreduceOptions options;
    options.reduceOp =
        reduction == comm::Reduction::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    return pending(group_->allreduce(tensors, options), tensors);
  }
  comm::Pending start_all_gather(const Call&, const Tensor& output, const Tensor& input,
                                 Blocks blocks) override {
    // Each sends its block to everyone, so that blocks may differ in size.
    Tensor to = bytes_of(output);
    Tensor from = bytes_of(input).repeat({size()});
    const int64_t unit = blocks.unit * static_cast<int64_t>(input.element_size());
    std::vector<int64_t> receive, send(static_cast<size_t>(size()), bytes_of(input).numel());
    for (const int64_t count : blocks.counts) receive.push_back(count * unit);
    return pending(group_->alltoall_base(to, from, receive, send), {to, from});
  }
  comm::Pending start_all_to_all(const Call&, const Tensor& output, const Tensor& input,
                                 Blocks send, Blocks receive) override {
    Tensor to = bytes_of(output), from = bytes_of(input);
    const auto in_bytes = [&](Blocks& blocks) {
      for (int64_t& count : blocks.counts)
        count *= blocks.unit * static_cast<int64_t>(input.element_size());
    };
    in_bytes(send);
    in_bytes(receive);
    return pending(group_->alltoall_base(to, from, receive.counts, send.counts), {to, from});
  }
  comm::Pending start_barrier(const Call&) override { return pending(group_->barrier(), {}); }

  comm::Pending start_reduce_scatter(const Call&, const Tensor&, const Tensor&,
                                     comm::Reduction) override {
    refuse("reduce_scatter");
  }
  comm::Pending start_broadcast(const Call&, const Tensor&, int) override { refuse("broadcast"); }
  std::unique_ptr<Communicator> start_split(int, int, const std::string&) override {
    refuse("split");
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<comm::Communicator> open_process_group(const std::string& name) {
  if (name.empty()) return comm::open_single_group("this process", 0);
  return std::make_shared<ProcessGroupCommunicator>(c10d::resolve_process_group(name), name);
}

}  // namespace ballast::python
