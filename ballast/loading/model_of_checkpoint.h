// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/config/config.h"

namespace ballast::loading {

// Checks by names and shapes that `config` describes the model in the checkpoint, before memory is
// allocated. UserError: it does not, or `config` could not be trained.
void check_model_of(const checkpoint::Checkpoint& checkpoint, const config::Config& config);

}  // namespace ballast::loading
