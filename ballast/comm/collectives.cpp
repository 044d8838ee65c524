// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/collectives.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "ballast/comm/tensor_text.h"
#include "ballast/system/error.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// How rows go forward; backward they go the other way.
struct Exchange {
  Communicator* group;
  RowsOfWorker send, receive;
  Label label;
};

Tensor exchange(const Exchange& way, const Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = std::accumulate(way.receive.begin(), way.receive.end(), int64_t{0});
  const Tensor received = at::empty(shape, x.options());
  way.group->all_to_all_uneven(received, x.contiguous(), way.send, way.receive, way.label);
  return received;
}

struct AllToAllFunction : torch::autograd::Function<AllToAllFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Exchange& way) {
    context->saved_data["group"] = reinterpret_cast<int64_t>(way.group);
    context->saved_data["send"] = way.send;
    context->saved_data["receive"] = way.receive;
    context->saved_data["purpose"] = reinterpret_cast<int64_t>(way.label.purpose);
    context->saved_data["layer"] = int64_t{way.label.layer};
    return exchange(way, x);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    auto& saved = context->saved_data;
    const Exchange back{reinterpret_cast<Communicator*>(saved["group"].toInt()),
                        saved["receive"].toIntVector(),
                        saved["send"].toIntVector(),
                        {reinterpret_cast<const char*>(saved["purpose"].toInt()),
                         static_cast<int>(saved["layer"].toInt())}};
    return {exchange(back, dy[0]), {}};
  }
};

}  // namespace

Tensor all_to_all(Communicator& group, const Tensor& x, Label label) {
  const int64_t workers = group.size();
  if (x.dim() < 1 || x.size(0) % workers != 0) {
    fail("{}: {} cannot be cut into {} equal blocks of rows", describe("all_to_all", label),
         tensor_text(x), workers);
  }
  const RowsOfWorker rows(workers, x.size(0) / workers);
  return all_to_all(group, x, rows, rows, label);
}

Tensor all_to_all(Communicator& group, const Tensor& x, const RowsOfWorker& send,
                  const RowsOfWorker& receive, Label label) {
  if (x.dim() < 1) fail("{}: {} has no rows", describe("all_to_all", label), tensor_text(x));
  return AllToAllFunction::apply(x, Exchange{&group, send, receive, label});
}

}  // namespace ballast
