// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/wikitext.h"

#include <array>
#include <utility>

#include "ballast/inference/white_space.h"

namespace ballast::inference {
namespace {

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t found; (found = text.find(what)) != text.npos;) {
    out.append(text.substr(0, found)).append(by);
    text.remove_prefix(found + what.size());
  }
  return out.append(text);
}

// Takes away the space next to an opening mark and to the closing one that follows it.
std::string drawn_together(std::string_view text, char open, char close) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = text.find(open);
    const size_t end = begin == text.npos ? text.npos : text.find(close, begin + 1);
    if (end == text.npos) break;
    out.append(text.substr(0, begin + 1));
    out.append(without_space_around(text.substr(begin + 1, end - begin - 1))).push_back(close);
    text.remove_prefix(end + 1);
  }
  return out.append(text);
}

bool begins_page(std::string_view line) {
  const std::string heading = replaced(replaced(line, "= = =", "==="), "= =", "==");
  const std::string_view bare = without_space_around(heading);
  return bare.starts_with("= ") && bare.ends_with(" =");
}

}  // namespace

std::vector<std::string> wikitext_pages(std::string_view text) {
  std::vector<std::string> pages;
  std::string page;
  bool is_first_line = true;
  const auto end_page = [&] {
    if (!without_space_around(page).empty()) pages.push_back(page);
    page.clear();
    is_first_line = true;
  };
  for (bool more = true; more;) {
    const size_t end = text.find('\n');
    more = end != text.npos;
    const std::string_view line = text.substr(0, end);
    if (begins_page(line)) end_page();
    if (!std::exchange(is_first_line, false)) page += '\n';
    page += line;
    if (more) text.remove_prefix(end + 1);
  }
  end_page();
  return pages;
}

std::string wikitext_detokenized(std::string text) {
  using Change = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Change, 10> kBefore = {{{"s '", "s'"},
                                               {" @-@ ", "-"},
                                               {" @,@ ", ","},
                                               {" @.@ ", "."},
                                               {" : ", ": "},
                                               {" ; ", "; "},
                                               {" . ", ". "},
                                               {" ! ", "! "},
                                               {" ? ", "? "},
                                               {" , ", ", "}}};
  constexpr std::array<std::pair<char, char>, 5> kMarks = {
      {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}}};
  constexpr std::array<Change, 8> kAfter = {{{"= = = =", "===="},
                                             {"= = =", "==="},
                                             {"= =", "=="},
                                             {" \xc2\xb0 ", "\xc2\xb0"},
                                             {" \n", "\n"},
                                             {"\n ", "\n"},
                                             {" N ", " 1 "},
                                             {" 's", "'s"}}};
  for (const auto& [what, by] : kBefore) text = replaced(text, what, by);
  for (const auto& [open, close] : kMarks) text = drawn_together(text, open, close);
  for (const auto& [what, by] : kAfter) text = replaced(text, what, by);
  return text;
}

}  // namespace ballast::inference
