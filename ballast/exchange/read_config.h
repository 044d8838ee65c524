// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"
#include "ballast/exchange/family.h"
#include "ballast/exchange/hf_folder.h"

namespace ballast::exchange {

struct HfModel {
  Family family = Family::kLlama;
  config::Config config = {};  // model and experts; the rest has its defaults
};

// What config.json describes. `context`: tokens the model is to have room for, at most what it
// says; 0: that. UserError: the architecture is none of ours, or the computation cannot be
// represented; the message names the key.
HfModel read_model(const HfFolder& folder, int64_t context = 0);

}  // namespace ballast::exchange
