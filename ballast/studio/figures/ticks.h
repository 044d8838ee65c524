// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ballast::figures {

enum class Scale { kLinear, kLog };

struct Tick {
  double value = 0;
  std::string text;  // empty: a line of the grid alone
};

// What an axis shows. REQUIRES of a logarithmic one: low > 0.
struct Range {
  double low = 0, high = 1;
  Scale scale = Scale::kLinear;

  // Where a value lies: 0 at low, 1 at high; not finite for values that have no place.
  double part(double value) const;
};

// The range that holds all values, with round ends. Values that are not finite, and on a
// logarithmic scale those that are not positive, are passed over; without any it is 0 to 1, or 1 to
// 10. A single value gets room on both sides.
Range range_of(const std::vector<double>& values, Scale scale);

// Round numbers within a range, about `wanted` of them with a text (at least two wherever two round
// numbers lie within). On a logarithmic scale: 1, 2 and 5 times powers of ten, or powers alone; in
// a short range 1, 1.5, 2, 3, 4, 5 and 7 times; in one that holds few of these, those of the linear
// scale.
std::vector<Tick> ticks_of(const Range& range, int wanted);

// A number for people: "0.05", "12.5", "3200", "12k", "4.5M"; not finite: "-". `step` is the
// distance that must still be seen; 0: three digits.
std::string number_text(double value, double step = 0);

}  // namespace ballast::figures
