// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace ballast {

// The time when it was made, in UTC: "2026-11-17T19:40:12Z". A signal handler may make one.
class TimeStamp {
 public:
  TimeStamp() noexcept;
  std::string_view text() const noexcept { return {text_.data(), text_.size()}; }

 private:
  std::array<char, 20> text_;
};

}  // namespace ballast
