// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// A group and what a call in it is for, as autograd keeps it for the way back.
struct Purpose {
  Communicator* group;
  Label label;

  void save(torch::autograd::AutogradContext* context) const {
    context->saved_data["group"] = reinterpret_cast<int64_t>(group);
    context->saved_data["purpose"] = reinterpret_cast<int64_t>(label.purpose);
    context->saved_data["layer"] = int64_t{label.layer};
  }
  static Purpose saved(torch::autograd::AutogradContext* context) {
    auto& saved = context->saved_data;
    return {reinterpret_cast<Communicator*>(saved["group"].toInt()),
            {reinterpret_cast<const char*>(saved["purpose"].toInt()),
             static_cast<int>(saved["layer"].toInt())}};
  }
};

}  // namespace ballast::comm
