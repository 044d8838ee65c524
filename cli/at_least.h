// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace ballast::cli {

// Checks that an option is a whole number of at least `least`; what is wrong is said in words.
CLI::Validator at_least(int least);
// That it is a number above 0.
CLI::Validator above_zero();
// That it is a number from 0 to 0.5.
CLI::Validator at_most_half();

}  // namespace ballast::cli
