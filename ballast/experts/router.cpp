// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/router.h"

#include <ATen/ops/zeros.h>

#include "ballast/experts/base_router.h"
#include "ballast/experts/gate_router.h"

namespace ballast::experts {

const at::Tensor& Router::sums(at::Device device, int64_t prices) {
  if (!stats_.sums.defined()) {
    stats_.sums = at::zeros({kRoutingSums + prices}, at::TensorOptions(device).dtype(at::kDouble));
  }
  return stats_.sums;
}

std::unique_ptr<Router> make_router(const config::Config& config, int64_t place,
                                    parameters::ParameterTable& table,
                                    comm::Communicator& workers) {
  if (config.experts.traits().balanced)
    return std::make_unique<BaseRouter>(config, place, table, workers);
  return std::make_unique<GateRouter>(config, place, table, workers);
}

}  // namespace ballast::experts
