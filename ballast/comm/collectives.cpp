// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "ballast/comm/purpose.h"
#include "ballast/comm/tensor_text.h"
#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// How rows go forward; backward they go the other way.
struct Exchange {
  Purpose purpose;
  RowsOfWorker send, receive;
};

Tensor exchange(const Exchange& way, const Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = std::accumulate(way.receive.begin(), way.receive.end(), int64_t{0});
  const Tensor received = at::empty(shape, x.options());
  way.purpose.group->all_to_all_uneven(received, x.contiguous(), way.send, way.receive,
                                       way.purpose.label);
  return received;
}

struct AllToAllFunction : torch::autograd::Function<AllToAllFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Exchange& way) {
    way.purpose.save(context);
    context->saved_data["send"] = way.send;
    context->saved_data["receive"] = way.receive;
    return exchange(way, x);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    auto& saved = context->saved_data;
    const Exchange back{Purpose::saved(context), saved["receive"].toIntVector(),
                        saved["send"].toIntVector()};
    return {exchange(back, dy[0]), {}};
  }
};

}  // namespace

Tensor all_to_all(Communicator& group, const Tensor& x, const RowsOfWorker& send,
                  const RowsOfWorker& receive, Label label) {
  if (x.dim() < 1) fail("{}: {} has no rows", describe("all_to_all", label), tensor_text(x));
  return AllToAllFunction::apply(x, Exchange{{&group, label}, send, receive});
}

// The one call that is under way: there, or backward.
struct RowsUnderWay::Flight {
  Purpose purpose;
  Pending pending = {};

  // What is kept until the call has ended holds no graph: that would hold this call.
  Tensor begin(const Tensor& x) {
    const Tensor sent = x.contiguous(), received = at::empty_like(sent);
    pending = purpose.group->begin_all_to_all(received.detach(), sent.detach(), purpose.label);
    return received;
  }
  void finish() { purpose.group->finish_all_to_all(pending, purpose.label); }
};

struct RowsUnderWay::Kept : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<Flight> flight) : flight(std::move(flight)) {}
  std::shared_ptr<Flight> flight;

  static void save(AutogradContext* context, const std::shared_ptr<Flight>& flight) {
    context->saved_data["flight"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(flight));
  }
  static Flight& saved(AutogradContext* context) {
    const auto holder = context->saved_data["flight"].toCapsule();
    return *static_cast<Kept&>(*holder).flight;
  }
};

struct RowsUnderWay::Begin : torch::autograd::Function<Begin> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const std::shared_ptr<Flight>& flight) {
    Kept::save(context, flight);
    return flight->begin(x);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dx) {
    Kept::saved(context).finish();
    return {dx[0], {}};
  }
};

struct RowsUnderWay::Finish : torch::autograd::Function<Finish> {
  static Tensor forward(AutogradContext* context, const Tensor& arriving,
                        const std::shared_ptr<Flight>& flight) {
    Kept::save(context, flight);
    flight->finish();
    return arriving.view_as(arriving);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return {Kept::saved(context).begin(dy[0]), {}};
  }
};

RowsUnderWay::RowsUnderWay(Communicator& group, Label label)
    : flight_(std::make_shared<Flight>(Purpose{&group, label})) {}

Tensor RowsUnderWay::begin(const Tensor& x) const { return Begin::apply(x, flight_); }

Tensor RowsUnderWay::finish(const Tensor& arriving) const {
  return Finish::apply(arriving, flight_);
}

namespace {

Tensor all_rows(const Purpose& purpose, const Tensor& own, const RowsOfWorker& rows) {
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const Tensor all = at::empty(shape, own.options());
  purpose.group->all_gather_uneven(all, own.contiguous(), rows, purpose.label);
  return all;
}

Tensor rows_here(const Purpose& purpose, const Tensor& x, const RowsOfWorker& rows) {
  return x.narrow(0, first_own_row(*purpose.group, rows),
                  rows[static_cast<size_t>(purpose.group->rank())]);
}

struct SumFunction : torch::autograd::Function<SumFunction> {
  static Tensor forward(AutogradContext*, const Tensor& x, const Purpose& purpose) {
    Tensor sum = x.clone(at::MemoryFormat::Contiguous);
    purpose.group->all_reduce(sum, Reduction::kSum, purpose.label);
    return sum;
  }
  static tensor_list backward(AutogradContext*, const tensor_list& dy) { return {dy[0], {}}; }
};

using MoveRows = Tensor (*)(const Purpose& purpose, const Tensor& x, const RowsOfWorker& rows);

// One way there, the other on the way back.
template <MoveRows kThere, MoveRows kBack>
struct RowsFunction : torch::autograd::Function<RowsFunction<kThere, kBack>> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Purpose& purpose,
                        const RowsOfWorker& rows) {
    purpose.save(context);
    context->saved_data["rows"] = rows;
    return kThere(purpose, x, rows);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const RowsOfWorker rows = context->saved_data["rows"].toIntVector();
    return {kBack(Purpose::saved(context), dy[0], rows), {}, {}};
  }
};
using OwnRowsFunction = RowsFunction<rows_here, all_rows>;
using GatherRowsFunction = RowsFunction<all_rows, rows_here>;

void check_rows(const char* call, const Communicator& shards, const Tensor& x,
                const RowsOfWorker& rows, Label label) {
  if (x.dim() < 1 || std::ssize(rows) != shards.size()) {
    fail("{}: {} cannot be divided into the rows {} of {} workers", describe(call, label),
         tensor_text(x), fmt::join(rows, ", "), shards.size());
  }
}

}  // namespace

Tensor sum_over_shards(Communicator& shards, const Tensor& x, Label label) {
  return shards.size() == 1 ? x : SumFunction::apply(x, Purpose{&shards, label});
}

RowsOfWorker divide_rows(int64_t rows, int workers) {
  RowsOfWorker of_worker;
  for (int64_t worker = 0; worker < workers; ++worker)
    of_worker.push_back((worker + 1) * rows / workers - worker * rows / workers);
  return of_worker;
}

int64_t first_own_row(const Communicator& shards, const RowsOfWorker& rows) {
  return std::accumulate(rows.begin(), rows.begin() + shards.rank(), int64_t{0});
}

Tensor own_rows(Communicator& shards, const Tensor& x, const RowsOfWorker& rows, Label label) {
  check_rows("own_rows", shards, x, rows, label);
  return shards.size() == 1 ? x : OwnRowsFunction::apply(x, Purpose{&shards, label}, rows);
}

Tensor gather_rows(Communicator& shards, const Tensor& own, const RowsOfWorker& rows, Label label) {
  check_rows("gather_rows", shards, own, rows, label);
  return shards.size() == 1 ? own : GatherRowsFunction::apply(own, Purpose{&shards, label}, rows);
}

}  // namespace ballast::comm
