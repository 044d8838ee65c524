// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace ballast {

// The number that the text is, as a whole, the way std::from_chars reads it. Nothing: it is none,
// or more than a Number holds.
template <class Number, class... Base>
std::optional<Number> number_from(std::string_view text, Base... base) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, base...);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

}  // namespace ballast
