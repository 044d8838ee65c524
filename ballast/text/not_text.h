// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast::text {

// How much of a content is looked at to tell whether it is text.
inline constexpr size_t kHeadBytes = 4096;

// What keeps `head`, the first bytes of a content, from being text, in words that follow "is":
// a well-known format ("gzip", "a PDF", "a pickle", ...), "binary (it has NUL bytes)", "not UTF-8"
// where that holds for more than a tenth of the bytes. Empty if it is text.
std::string reason_not_text(std::string_view head);

// What a person can do about it, as a clause: "convert it with iconv, ...".
std::string_view cure_for_not_text(std::string_view reason);

}  // namespace ballast::text
