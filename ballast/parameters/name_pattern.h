// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast::parameters {

// Whether a name fits a pattern, in which * stands for any characters, also none.
bool fits(std::string_view name, std::string_view pattern);
bool fits_any(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace ballast::parameters
