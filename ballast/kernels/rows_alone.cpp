// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/rows_alone.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace ballast::kernels {
namespace {

thread_local bool is_wanted = false;

}  // namespace

RowsAlone::RowsAlone() : before_(std::exchange(is_wanted, true)) {}
RowsAlone::~RowsAlone() { is_wanted = before_; }

bool RowsAlone::hold_for(const at::Tensor& x) {
  return is_wanted && x.is_cpu() && !at::GradMode::is_enabled() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

}  // namespace ballast::kernels
