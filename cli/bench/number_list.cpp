// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/number_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ballast/system/error.h"

namespace ballast::cli {

std::vector<int64_t> parse_numbers(const NumberList& wanted, const std::string& text) {
  const auto most = static_cast<size_t>(1 + std::ranges::count(wanted.names, ','));
  const size_t fewest = wanted.fewest > 0 ? wanted.fewest : most;
  std::vector<int64_t> numbers;
  bool good = true;
  for (const char *at = text.data(), *end = at + text.size(); good && at <= end;) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    good = error == std::errc() && (rest == end || *rest == ',');
    numbers.push_back(number);
    at = rest + 1;
  }
  if (!good || numbers.size() < fewest || numbers.size() > most) {
    fail("{}: want {} numbers, {}; got \"{}\"", wanted.option,
         fewest == most ? fmt::format("{}", most) : fmt::format("{} or {}", fewest, most),
         wanted.names, text);
  }
  return numbers;
}

}  // namespace ballast::cli
