// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace ballast::cli {

// Checks that an option is a whole number of at least `least`; what is wrong is said in words.
CLI::Validator at_least(int least);
// That it is a number above 0.
CLI::Validator above_zero();
// That it is a number from `low` to `high`.
CLI::Validator from_to(double low, double high);

}  // namespace ballast::cli
