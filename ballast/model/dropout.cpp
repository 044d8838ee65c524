// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/dropout.h"

#include <ATen/ops/empty.h>

#include "ballast/kernels/dropout.h"
#include "ballast/step/step_inputs.h"
#include "ballast/system/random.h"

namespace ballast::model {

using at::Tensor;

Dropout::Dropout(const Options& options, const experts::Routing& routing) : options_(options) {
  const auto make = [route = *routing.training](uint64_t step) {
    const Tensor key = at::empty({1}, at::TensorOptions().dtype(at::kLong));
    *key.mutable_data_ptr<int64_t>() =
        static_cast<int64_t>(random_bits(route.seed, "dropout", step, route.micro_step));
    return key;
  };
  key_ = step::take_input({routing.inputs, routing.training->step, options.device}, make);
}

Tensor Dropout::at_place(const Tensor& x, int64_t place) const {
  if (!key_.defined()) return x;
  return kernels::dropout(x, {key_, place, options_.first_row, options_.part});
}

}  // namespace ballast::model
