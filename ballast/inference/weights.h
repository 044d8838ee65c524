// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// A flat buffer's segments as named host tensors, ready to be written: weights are called by the
// parameter's name, other buffers "<prefix>/<name>". Tensors on a GPU are copied to `host` first,
// which must outlive the views.
std::vector<TensorView> segment_views(const ParameterTable& table, const at::Tensor& flat,
                                      const std::string& prefix, at::Tensor& host);

// Fills a flat buffer from a checkpoint. Throws UserError naming a tensor that is missing or of
// another shape.
void load_segments(const Checkpoint& checkpoint, const ParameterTable& table,
                   const at::Tensor& flat, const std::string& prefix);

}  // namespace ballast
