// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"
#include "ballast/exchange/config_keys.h"

namespace ballast::exchange {

// How queries and keys are turned: rope_parameters, or rope_theta and rope_scaling of transformers
// before 5. `theta`: where neither says. REQUIRES: model.context. UserError: a kind of scaling that
// cannot be represented.
void read_rope(const ConfigKeys& keys, double theta, config::ModelConfig& model);

}  // namespace ballast::exchange
