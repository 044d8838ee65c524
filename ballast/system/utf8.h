// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ballast {

// The text with every byte that is no part of a valid UTF-8 sequence replaced by U+FFFD: what logs,
// JSON and TensorBoard take, where a model may have written anything.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace ballast
