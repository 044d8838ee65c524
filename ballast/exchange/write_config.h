// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ballast/config/config.h"
#include "ballast/exchange/family.h"

namespace ballast::exchange {

// What config.json says beside the model's shape.
struct ConfigFacts {
  std::string dtype;                        // of the weights: "float32"
  std::optional<int64_t> end_of_text = {};  // a token; nothing: there is no tokenizer
};

// config.json of a model that is of this family. REQUIRES: fitting_family() says so.
nlohmann::ordered_json config_of_family(Family family, const config::Config& config,
                                        const ConfigFacts& facts);
// config.json of any model, for modeling_ballast.py: every value resolved that it needs.
nlohmann::ordered_json config_of_our_own(const config::Config& config, const ConfigFacts& facts);

}  // namespace ballast::exchange
