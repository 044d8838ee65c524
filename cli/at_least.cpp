// SPDX-License-Identifier: Apache-2.0
#include "cli/at_least.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "ballast/config/plain_number.h"

namespace ballast::cli {

CLI::Validator at_least(int least) {
  const auto check = [least](const std::string& text) -> std::string {
    double value = 0;
    const bool is_number = CLI::detail::lexical_cast(text, value);
    if (is_number && value >= least && value == std::floor(value)) return "";
    return fmt::format("\"{}\" is not a whole number of at least {}", text, least);
  };
  return CLI::Validator(check, "");
}

CLI::Validator above_zero() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value)) return "";
    return fmt::format("\"{}\" is not a number above 0", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator from_to(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
    return fmt::format("\"{}\" is not a number from {} to {}", text, config::plain_number(low),
                       config::plain_number(high));
  };
  return CLI::Validator(check, "");
}

}  // namespace ballast::cli
