// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ballast/config/config.h"

namespace ballast::python {

// What a layer is, as one text: lines "KEY VALUE" with the keys of config/knobs.cpp; "place N",
// which its parameters' names have; and after the router "frame ballast" or "frame paper".
struct LayerSettings {
  config::Config config;
  int64_t place = 1;
};

// UserError names the key that is wrong, or does not fit the others.
LayerSettings parse_settings(const std::string& text);

}  // namespace ballast::python
