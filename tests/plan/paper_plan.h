// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ballast/config/config.h"
#include "ballast/studio/plan/plan.h"

namespace ballast::plan::test {

// configs/paper_NAME.toml of the checkout `source`.
inline config::Config paper_config(const std::string& source, const std::string& name) {
  config::Config config;
  config::read_config_file(config, source + "/configs/paper_" + name + ".toml");
  return config;
}

inline Cluster cluster_of(int64_t workers, const std::string& device = "v100") {
  return {.workers = workers, .device = find_device(device), .network = find_network("infiniband")};
}

}  // namespace ballast::plan::test
