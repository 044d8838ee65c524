// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/utf8.h"

namespace ballast::serving {

// A text that comes in pieces, as far as it can be shown: in whole characters, and nothing of a
// stop text, which ends it, nor of what may become one.
class ShownText {
 public:
  explicit ShownText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What can be shown beside what was before.
  std::string add(std::string_view piece);
  std::string rest();  // at the end of a text that was not stopped
  bool stopped() const { return stopped_; }
  // Bytes of the text that were shown, or would be but for a character's end.
  size_t released() const { return released_; }

 private:
  std::string release(size_t bytes);

  std::vector<std::string> stops_;
  std::string held_;
  ValidUtf8Stream characters_;
  size_t released_ = 0;
  bool stopped_ = false;
};

}  // namespace ballast::serving
