// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/console.h"

namespace ballast {

// How workers tell their launcher what to show: a line on stderr that starts with a control
// character, which no text has (printable()). What stands before it was put there on the way.
struct Frame {
  enum class Kind { kLine, kBar, kClearing };
  Kind kind = Kind::kLine;
  std::string prefix = {};
  Weight weight = Weight::kInfo;
  std::vector<LinePart> parts = {};
  Bar bar = {};
};

std::string frame_of_line(Weight weight, const std::vector<LinePart>& parts);
std::string frame_of_bar(const Bar& bar);
std::string frame_of_clearing();

// Nothing: the line is no frame, or has come damaged.
std::optional<Frame> read_frame(std::string_view line);

}  // namespace ballast
