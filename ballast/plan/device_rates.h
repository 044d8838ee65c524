// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ballast {

// What a worker's processor can do at most, from its maker's data sheet.
struct DeviceRates {
  std::string name;             // "v100"
  double matrix_flops = 0;      // operations a second of matrix products, in training's precision
  double memory_bandwidth = 0;  // bytes a second
  double memory = 0;            // bytes
};

std::vector<std::string> device_names();
const DeviceRates& find_device(const std::string& name);  // UserError lists the names

}  // namespace ballast
