// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ballast::figures {
namespace {

// The smallest of 1, 2, 5 times a power of ten that is at least x.
double round_step(double x) {
  const double power = std::pow(10, std::floor(std::log10(x)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= x * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Of the numbers that round_step gives, the one below.
double next_smaller(double step) { return round_step(0.4 * step); }

// Multiples of step within the range.
std::vector<double> multiples(const Range& range, double step) {
  std::vector<double> values;
  const double slack = 1e-9 * (range.high - range.low) / step;
  for (double i = std::ceil(range.low / step - slack); i <= std::floor(range.high / step + slack);
       ++i)
    values.push_back(i * step);
  return values;
}

std::vector<Tick> linear_ticks(const Range& range, int wanted) {
  double step = round_step((range.high - range.low) / std::max(1, wanted));
  while (std::ssize(multiples(range, step)) < std::max(2, wanted - 1)) step = next_smaller(step);
  std::vector<Tick> ticks;
  for (const double value : multiples(range, step))
    ticks.push_back({value, number_text(value, step)});
  return ticks;
}

// Those of `factors` times a power of ten that lie within the range.
std::vector<double> log_values(const Range& range, std::initializer_list<double> factors) {
  std::vector<double> values;
  for (int power = static_cast<int>(std::floor(std::log10(range.low)));
       std::pow(10, power) <= range.high * (1 + 1e-9); ++power) {
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      if (value >= range.low * (1 - 1e-9) && value <= range.high * (1 + 1e-9))
        values.push_back(value);
    }
  }
  return values;
}

std::vector<Tick> log_ticks(const Range& range, int wanted) {
  const auto most = static_cast<int64_t>(wanted) + 2;
  std::vector<double> named = log_values(range, {1, 2, 5});

  if (std::ssize(named) > most) named = log_values(range, {1});
  if (std::ssize(named) < 3) named = log_values(range, {1, 1.5, 2, 3, 4, 5, 7});

  if (std::ssize(named) < 3 && std::log10(range.high / range.low) < 1.3) {
    Range plain = range;
    plain.scale = Scale::kLinear;
    return linear_ticks(plain, std::max(3, wanted - 1));
  }
  // Of many powers each second, third and so on has a text.
  const auto every = static_cast<size_t>((std::ssize(named) + most - 1) / most);
  std::vector<Tick> ticks;
  for (size_t i = 0; i < named.size(); ++i)
    ticks.push_back({named[i], i % every == 0 ? number_text(named[i]) : ""});
  return ticks;
}

std::string trimmed(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace

double Range::part(double value) const {
  if (scale == Scale::kLinear) return (value - low) / (high - low);
  if (!(value > 0)) return std::numeric_limits<double>::quiet_NaN();
  return std::log(value / low) / std::log(high / low);
}

Range range_of(const std::vector<double>& values, Scale scale) {
  const bool is_log = scale == Scale::kLog;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : values) {
    if (!std::isfinite(value) || (is_log && value <= 0)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return is_log ? Range{1, 10, scale} : Range{0, 1, scale};
  if (is_log) {
    if (high / low < 1.02) {
      low /= 1.1;
      high *= 1.1;
    }
    const double room = std::pow(high / low, 0.04);
    return {low / room, high * room, scale};
  }
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {
    const double room = low == 0 ? 1 : 0.1 * std::abs(low);
    low -= low == 0 ? 0 : room;
    high += room;
  }
  const double step = round_step((high - low) / 5) / 2;
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, scale};
}

std::vector<Tick> ticks_of(const Range& range, int wanted) {
  return range.scale == Scale::kLog ? log_ticks(range, wanted) : linear_ticks(range, wanted);
}

std::string number_text(double value, double step) {
  if (!std::isfinite(value)) return "-";
  if (value == 0 || (step > 0 && std::abs(value) < 1e-9 * step)) return "0";
  const double size = std::abs(value);
  if (size < 1e-4 && (step == 0 || step < 1e-4)) return fmt::format("{:.2g}", value);
  struct Suffix {
    double unit;
    const char* text;
  };
  static constexpr std::array<Suffix, 4> kSuffixes = {
      {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e4, "k"}}};
  double unit = 1;
  const char* suffix = "";
  for (const Suffix& one : kSuffixes) {
    if (size < one.unit * (1 - 1e-9)) continue;
    unit = one.text[0] == 'k' ? 1e3 : one.unit;
    suffix = one.text;
    break;
  }
  const double distance =
      step > 0 ? step / unit : std::pow(10, std::floor(std::log10(size / unit)) - 2);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)), 0, 9);
  return trimmed(value / unit, digits) + suffix;
}

}  // namespace ballast::figures
