// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ballast {

// Text as it may stand in HTML and XML, within elements and within quoted attributes.
std::string html_text(std::string_view text);

}  // namespace ballast
