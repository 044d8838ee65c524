// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/markup.h"

#include "ballast/system/utf8.h"

namespace ballast::figures {

std::string markup_text(std::string_view text) {
  std::string safe;
  for (const char letter : replace_invalid_utf8(text)) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      case '\t':
      case '\n':
      case '\r':
        safe += letter;
        break;
      default:
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f)
          safe += "\xef\xbf\xbd";
        else
          safe += letter;
    }
  }
  return safe;
}

double text_width(std::string_view text) {
  constexpr std::string_view kNarrow = "iljtfrI.,:;'|!() ", kWide = "mwMW%@";
  double width = 0;
  for (const char letter : text) {
    if ((static_cast<unsigned char>(letter) & 0xc0) == 0x80) continue;  // within a character
    if (kNarrow.find(letter) != std::string_view::npos)
      width += 0.36;
    else if (kWide.find(letter) != std::string_view::npos)
      width += 0.95;
    else
      width += letter >= 'A' && letter <= 'Z' ? 0.70 : 0.61;
  }
  return width;
}

std::string shortened(std::string_view text, double width) {
  constexpr double kRounding = 1e-9;
  if (text_width(text) <= width + kRounding) return std::string(text);
  constexpr std::string_view kEllipsis = "\u2026";
  const double room = width - text_width(kEllipsis);
  while (!text.empty() && text_width(text) > room) {
    do {
      text.remove_suffix(1);
    } while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0 &&
             replace_invalid_utf8(text) != text);
  }
  while (text.ends_with(' ') || text.ends_with(',')) text.remove_suffix(1);
  return std::string(text) + std::string(kEllipsis);
}

}  // namespace ballast::figures
