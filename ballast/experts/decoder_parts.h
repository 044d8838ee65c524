// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"
#include "ballast/kernels/activation.h"
#include "ballast/kernels/layer_norm.h"

namespace ballast::experts {

// What the decoder's knobs are for kernels: for the blocks, and for experts and routers, which are
// made of the same parts.

inline kernels::NormForm norm_form_of(const config::ModelConfig& model) {
  return {
      model.norm == config::NormKind::kRms ? kernels::NormKind::kRms : kernels::NormKind::kLayer,
      model.norm_epsilon};
}

inline kernels::Activation activation_of(const config::ModelConfig& model) {
  switch (model.activation) {
    case config::Activation::kGelu:
      return kernels::Activation::kGelu;
    case config::Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case config::Activation::kRelu2:
      return kernels::Activation::kRelu2;
    case config::Activation::kSwiglu:
      return kernels::Activation::kSwiglu;
    case config::Activation::kRelu:
      break;
  }
  return kernels::Activation::kRelu;
}

}  // namespace ballast::experts
