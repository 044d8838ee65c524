// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/machine_hops.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "ballast/comm/arrivals.h"
#include "ballast/comm/texts.h"

namespace ballast::comm {

using at::Tensor;

std::vector<int> machines_of(Communicator& workers) {
  const auto names = gather_texts(workers, machine_identity(), {"machines"});
  std::vector<std::string> seen;
  std::vector<int> machines;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(seen, name);
    machines.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(name);
  }
  return machines;
}

namespace {

std::vector<std::vector<int>> by_machine(const std::vector<int>& machines) {
  std::vector<std::vector<int>> workers(
      machines.empty() ? 0 : static_cast<size_t>(std::ranges::max(machines)) + 1);
  for (size_t worker = 0; worker < machines.size(); ++worker)
    workers[static_cast<size_t>(machines[worker])].push_back(static_cast<int>(worker));
  return workers;
}

}  // namespace

bool MachineHops::suit(const std::vector<int>& machines) {
  const auto workers = by_machine(machines);
  return workers.size() > 1 && workers.front().size() > 1 &&
         std::ranges::all_of(workers, [&](const std::vector<int>& of_machine) {
           return of_machine.size() == workers.front().size();
         });
}

MachineHops::MachineHops(Communicator& workers, const std::vector<int>& machines)
    : workers_at_(by_machine(machines)),
      machine_(machines.at(static_cast<size_t>(workers.rank()))) {
  TORCH_CHECK(suit(machines) && std::ssize(machines) == workers.size(),
              "MachineHops: want several machines of as many workers each");
  const std::vector<int>& here = neighbours();
  place_ = static_cast<size_t>(std::ranges::find(here, workers.rank()) - here.begin());
  within_ = workers.split(machine_, static_cast<int>(place_), fmt::format("machine {}", machine_));
  between_ = workers.split(static_cast<int>(place_), machine_,
                           fmt::format("the workers {} of all machines", place_));
}

std::shared_ptr<const MachineHops> hops_between_machines(Communicator& workers) {
  const std::vector<int> machines = machines_of(workers);
  if (!MachineHops::suit(machines)) return nullptr;
  return std::make_shared<const MachineHops>(workers, machines);
}

RowsOfMachine MachineHops::gather(const RowsOfWorker& send, const RowsOfWorker& receive,
                                  Label label) const {
  const auto count = static_cast<int64_t>(send.size());
  const Tensor own = at::empty({2, count}, at::kLong);
  std::ranges::copy(send, own.mutable_data_ptr<int64_t>());
  std::ranges::copy(receive, own.mutable_data_ptr<int64_t>() + count);
  const Tensor all = at::empty({within_->size(), 2, count}, at::kLong);
  within_->all_gather(all, own, label);
  RowsOfMachine rows;
  const auto* next = all.const_data_ptr<int64_t>();
  for (int i = 0; i < within_->size(); ++i) {
    rows.send.emplace_back(next, next + count);
    rows.receive.emplace_back(next + count, next + 2 * count);
    next += 2 * count;
  }
  return rows;
}

namespace {

// Blocks of rows in another order: `sizes` as they lie, `order` of these by number.
Tensor reordered(const Tensor& x, const std::vector<int64_t>& sizes,
                 const std::vector<size_t>& order) {
  if (std::ranges::is_sorted(order)) return x;
  std::vector<int64_t> begin(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begin.begin(), int64_t{0});
  std::vector<Tensor> blocks;
  for (const size_t block : order) blocks.push_back(x.narrow(0, begin[block], sizes[block]));
  return at::cat(blocks);
}

Tensor exchanged(Communicator& group, const Tensor& x, const RowsOfWorker& send,
                 const RowsOfWorker& receive, Label label) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  const Tensor received = at::empty(shape, x.options());
  group.all_to_all_uneven(received, x.contiguous(), send, receive, label);
  return received;
}

// Blocks of rows numbered by two things, [outer][inner], and what that makes of each outer one.
struct Grid {
  std::vector<int64_t> sizes;  // outer after outer
  size_t inner;
  RowsOfWorker sums() const {
    RowsOfWorker all(sizes.size() / inner, 0);
    for (size_t i = 0; i < sizes.size(); ++i) all[i / inner] += sizes[i];
    return all;
  }
  // By the inner thing first.
  std::vector<size_t> turned() const {
    std::vector<size_t> order;
    for (size_t in = 0; in < inner; ++in)
      for (size_t at = in; at < sizes.size(); at += inner) order.push_back(at);
    return order;
  }
};

}  // namespace

Tensor MachineHops::move(const Tensor& x, const RowsOfMachine& rows, Label label) const {
  const size_t machines = workers_at_.size(), places = neighbours().size();
  const RowsOfWorker &send = rows.send[place_], &receive = rows.receive[place_];
  // What is here, by place of the receiver in its machine, then by machine.
  Grid out{{}, machines};
  std::vector<size_t> order;
  for (size_t place = 0; place < places; ++place) {
    for (const std::vector<int>& machine : workers_at_) {
      order.push_back(static_cast<size_t>(machine[place]));
      out.sizes.push_back(send[order.back()]);
    }
  }
  // What neighbours have for the workers of this place, by neighbour, then by machine.
  Grid in{{}, machines};
  for (const RowsOfWorker& of_neighbour : rows.send) {
    for (const std::vector<int>& machine : workers_at_)
      in.sizes.push_back(of_neighbour[static_cast<size_t>(machine[place_])]);
  }
  const Tensor gathered =
      exchanged(*within_, reordered(x, send, order), out.sums(), in.sums(), label);
  // What comes from each machine, by its workers.
  Grid arriving{{}, places};
  std::vector<size_t> arrival_of_sender(send.size());
  for (const std::vector<int>& machine : workers_at_) {
    for (const int sender : machine) {
      arrival_of_sender[static_cast<size_t>(sender)] = arriving.sizes.size();
      arriving.sizes.push_back(receive[static_cast<size_t>(sender)]);
    }
  }
  RowsOfWorker leaving(machines, 0);
  for (size_t i = 0; i < in.sizes.size(); ++i) leaving[i % machines] += in.sizes[i];
  const Tensor arrived = exchanged(*between_, reordered(gathered, in.sizes, in.turned()), leaving,
                                   arriving.sums(), label);
  return reordered(arrived, arriving.sizes, arrival_of_sender);
}

// The way back is the same with senders and receivers exchanged.
struct TwoHopsFunction : torch::autograd::Function<TwoHopsFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const MachineHops* hops, const RowsOfMachine& rows, Label label) {
    auto& saved = context->saved_data;
    saved["hops"] = reinterpret_cast<int64_t>(hops);
    saved["purpose"] = reinterpret_cast<int64_t>(label.purpose);
    saved["layer"] = int64_t{label.layer};
    for (size_t i = 0; i < rows.send.size(); ++i) {
      saved[fmt::format("send {}", i)] = rows.send[i];
      saved[fmt::format("receive {}", i)] = rows.receive[i];
    }
    return hops->move(x, rows, label);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& dy) {
    auto& saved = context->saved_data;
    const auto* hops = reinterpret_cast<const MachineHops*>(saved["hops"].toInt());
    RowsOfMachine back;
    for (size_t i = 0; i < hops->neighbours().size(); ++i) {
      back.send.push_back(saved[fmt::format("receive {}", i)].toIntVector());
      back.receive.push_back(saved[fmt::format("send {}", i)].toIntVector());
    }
    const Label label{reinterpret_cast<const char*>(saved["purpose"].toInt()),
                      static_cast<int>(saved["layer"].toInt())};
    return {hops->move(dy[0], back, label), {}, {}, {}};
  }
};

Tensor MachineHops::all_to_all(const Tensor& x, const RowsOfMachine& rows, Label label) const {
  return TwoHopsFunction::apply(x, this, rows, label);
}

double MachineHops::take_all_to_all_seconds(int layer) const {
  return within_->take_all_to_all_seconds(layer) + between_->take_all_to_all_seconds(layer);
}

}  // namespace ballast::comm
