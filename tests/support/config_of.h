// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"

namespace ballast::test {

// A dense model of these sizes; everything else as it is by default.
inline config::Config config_of(const config::ModelConfig& model) {
  config::Config config;
  config.model = model;
  return config;
}

}  // namespace ballast::test
