// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/number_table.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "ballast/system/error.h"

namespace ballast::scores {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (end != last || text.empty()) return std::nullopt;
  if (error == std::errc()) return value;
  // Too large or too small for a double: strtod says which, by infinity or nearly 0.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(text).c_str(), nullptr);
  return std::nullopt;
}

// The fields of a line, one after another. A comma or semicolon anywhere makes it the separator.
class Fields {
 public:
  explicit Fields(std::string_view line)
      : rest_(line),
        separator_(line.find(';') != std::string_view::npos   ? ';'
                   : line.find(',') != std::string_view::npos ? ','
                                                              : ' ') {}

  std::optional<std::string_view> next() {
    if (done_) return std::nullopt;
    const size_t end = separator_ == ' ' ? rest_.find_first_of(kSpace) : rest_.find(separator_);
    const std::string_view field = trim(rest_.substr(0, end));
    done_ = end == std::string_view::npos;
    rest_.remove_prefix(done_ ? rest_.size() : end + 1);
    if (separator_ == ' ') rest_ = trim(rest_);
    return field;
  }

 private:
  std::string_view rest_;
  char separator_;
  bool done_ = false;
};

class TableReader {
 public:
  explicit TableReader(const fs::path& path) : path_(path), file_(path) {}

  NumberTable read() {
    std::string_view text = file_.text();
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    bool titles_possible = true;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = trim(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.empty() || line.starts_with('#')) continue;
      if (!titles_possible || !is_titles(line)) read_row(line);
      titles_possible = false;
    }
    return std::move(table_);
  }

 private:
  static bool is_titles(std::string_view line) {
    Fields fields(line);
    while (const auto field = fields.next())
      if (parse_number(*field)) return false;
    return true;
  }

  void read_row(std::string_view line) {
    Fields fields(line);
    int64_t column = 0;
    while (const auto field = fields.next()) {
      ++column;
      const auto number = parse_number(*field);
      if (!number)
        fail("{}, line {}, column {}: {} is not a number", path_.string(), line_, column,
             field->empty() ? "nothing" : fmt::format("\"{}\"", field->substr(0, 40)));
      table_.values.push_back(*number);
    }
    if (table_.rows++ == 0) {
      table_.columns = column;
      first_line_ = line_;
    } else if (column != table_.columns) {
      fail("{}, line {} has {} numbers, and line {} has {}", path_.string(), line_, column,
           first_line_, table_.columns);
    }
  }

  const fs::path& path_;
  MappedFile file_;
  NumberTable table_;
  int64_t line_ = 0, first_line_ = 0;
};

}  // namespace

NumberTable read_number_table(const fs::path& path) { return TableReader(path).read(); }

}  // namespace ballast::scores
