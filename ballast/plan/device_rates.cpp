// SPDX-License-Identifier: Apache-2.0
#include "ballast/plan/device_rates.h"

#include <fmt/ranges.h>

#include "ballast/system/error.h"

namespace ballast {
namespace {

const std::vector<DeviceRates>& all_devices() {
  static const std::vector<DeviceRates> devices = {{"v100", 125e12, 900e9, 32e9},
                                                   {"a100", 312e12, 2039e9, 80e9},
                                                   {"h100", 989e12, 3350e9, 80e9},
                                                   {"h200", 989e12, 4800e9, 141e9}};
  return devices;
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceRates& device : all_devices()) names.push_back(device.name);
  return names;
}

const DeviceRates& find_device(const std::string& name) {
  for (const DeviceRates& device : all_devices()) {
    if (device.name == name) return device;
  }
  fail("--device: there is no \"{}\"; want one of {}", name, fmt::join(device_names(), ", "));
}

}  // namespace ballast
