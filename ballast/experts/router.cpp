// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router.h"

#include <ATen/ops/zeros.h>

#include "ballast/experts/base_router.h"
#include "ballast/experts/gate_router.h"
#include "ballast/experts/spread_rows.h"

namespace ballast::experts {

at::Tensor Router::at_experts(const RoutedRows& routed, const ExpertStack& experts,
                              const Routing& routing) const {
  return experts.forward(routed, routing.gradients);
}

at::Tensor Router::at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                             const Dispatch& dispatch) const {
  const RowExchange& way = dispatch.way;
  return mix_rows(tokens, back, way.slot_of_row, way.row_of_slot, dispatch.weights);
}

const at::Tensor& Router::sums(at::Device device, int64_t prices) {
  if (!stats_.sums.defined()) {
    stats_.sums = at::zeros({kRoutingSums + prices}, at::TensorOptions(device).dtype(at::kDouble));
  }
  return stats_.sums;
}

std::unique_ptr<Router> make_router(const RouterPlace& place) {
  if (place.config.experts.traits().balanced) return std::make_unique<BaseRouter>(place);
  return std::make_unique<GateRouter>(place);
}

}  // namespace ballast::experts
