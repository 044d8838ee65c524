// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ballast::figures {

// Text as it may stand in HTML and XML, within elements and within quoted attributes. Bytes that
// are not UTF-8, and control characters that XML does not know, become U+FFFD.
std::string markup_text(std::string_view text);

// How wide a line of text is in the charts' font, in units of its size; an estimate that errs high.
double text_width(std::string_view text);

// The text, or as much of its beginning as has room in `width` (as above) with an ellipsis.
std::string shortened(std::string_view text, double width);

}  // namespace ballast::figures
