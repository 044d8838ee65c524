// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/config/config.h"

namespace ballast {

// Whether `config` is of the model that the checkpoint holds, by names and shapes, before memory is
// asked for. UserError: it is not, or `config` is none that could be trained.
void check_model_of(const Checkpoint& checkpoint, const Config& config);

}  // namespace ballast
