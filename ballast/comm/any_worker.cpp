// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/any_worker.h"

#include <ATen/ops/full.h>

namespace ballast::comm {

bool on_any_worker(Communicator& workers, bool here, Label label) {
  if (workers.size() == 1) return here;
  const at::Tensor any = at::full({1}, here ? 1 : 0, at::kInt);
  workers.all_reduce(any, Reduction::kMax, label);
  return any.item<int32_t>() != 0;
}

}  // namespace ballast::comm
