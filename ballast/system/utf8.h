// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ballast {

// The text with every byte that is no part of a valid UTF-8 sequence replaced by U+FFFD: what logs,
// JSON and TensorBoard take, where a model may have written anything.
std::string replace_invalid_utf8(std::string_view text);

// The same of a text that comes in pieces, which may end within a character.
class ValidUtf8Stream {
 public:
  std::string add(std::string_view piece);
  std::string rest();  // at the end

 private:
  std::string held_;
};

// The text as a terminal may be given it: control characters other than tabs and line ends, and
// bytes that are no UTF-8, stand as "\x1b". So the text cannot command the terminal.
std::string printable(std::string_view text);

// printable() of a text that comes in pieces, which may end within a character.
class PrintableStream {
 public:
  std::string add(std::string_view piece);
  std::string rest();  // at the end

 private:
  std::string held_;
};

}  // namespace ballast
