// SPDX-License-Identifier: Apache-2.0
#include "python/ops/layer_settings.h"

#include <sstream>

#include "ballast/system/error.h"

namespace ballast::python {

LayerSettings parse_settings(const std::string& text) {
  LayerSettings settings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) fail("\"{}\" is no setting: want KEY VALUE", line);
    const std::string key = line.substr(0, space), value = line.substr(space + 1);
    if (key == "place") {
      settings.place = std::stoll(value);
    } else if (key == "frame") {
      if (value != "ballast" && value != "paper")
        fail("frame \"{}\": want ballast or paper", value);
      if (value == "paper") config::take_papers_frame(settings.config.experts);
    } else {
      config::set_knob(settings.config, key, value);
    }
  }
  config::check_config(settings.config);
  return settings;
}

}  // namespace ballast::python
