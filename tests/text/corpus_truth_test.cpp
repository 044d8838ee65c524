// SPDX-License-Identifier: Apache-2.0
// What the documents of the built-in corpus say is true: checked by reading the texts, without the
// grammars. Programs are run by Python in tests/oracles/builtin_programs_test.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ballast/text/builtin_corpus.h"

namespace ballast::text {
namespace {

using Lines = std::vector<std::string>;

// Calls `check` with the lines of many documents of a domain.
void for_documents(const std::string& domain, const std::function<void(const Lines&)>& check) {
  const BuiltinCorpus corpus(21);
  int checked = 0;
  for (uint64_t i = 0; i < 1500; ++i) {
    const auto document = corpus.document("train", i);
    if (BuiltinCorpus::domains()[document.domain] != domain) continue;
    Lines lines;
    std::istringstream stream(document.text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    SCOPED_TRACE(document.text);
    check(lines);
    ++checked;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(checked, 150);
}

std::vector<int> numbers_in(const std::string& text) {
  static const std::regex number("-?\\d+");
  std::vector<int> numbers;
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    numbers.push_back(std::stoi(it->str()));
  }
  return numbers;
}

// The answer of an exercise; checks it on the way.
int check_exercise(const std::string& text) {
  static const std::regex binary("(\\d+) ([-+*/]) (\\d+) = (\\d+)(?: rest (\\d+))?"),
      chain("(add|subtract|double|triple|halve)(?: (\\d+))?: (\\d+)");
  const std::vector<int> n = numbers_in(text);
  const auto says = [&](const char* words) { return text.find(words) != text.npos; };
  std::smatch m;
  if (std::regex_match(text, m, binary)) {
    const int rest = m[5].matched ? std::stoi(m[5]) : 0;
    const char sign = m[2].str()[0];
    EXPECT_EQ(n[0], sign == '+'   ? n[2] - n[1]
                    : sign == '-' ? n[2] + n[1]
                    : sign == '*' ? n[2] / n[1]
                                  : n[2] * n[1] + rest);
    if (sign == '/') {
      EXPECT_LT(rest, n[1]);
    }
    return n[2];
  }
  if (text.starts_with("Take ")) {
    int value = n[0];
    for (std::sregex_iterator it(text.begin(), text.end(), chain), end; it != end; ++it) {
      const std::string verb = (*it)[1];
      const int operand = (*it)[2].matched ? std::stoi((*it)[2]) : 0;
      if (verb == "halve") {
        EXPECT_EQ(value % 2, 0);
      }
      value = verb == "add"        ? value + operand
              : verb == "subtract" ? value - operand
              : verb == "double"   ? value * 2
              : verb == "triple"   ? value * 3
                                   : value / 2;
      EXPECT_EQ(value, std::stoi((*it)[3]));
    }
    EXPECT_EQ(value, n.back());
  } else if (says("next is")) {
    for (size_t i = 2; i < n.size(); ++i) EXPECT_EQ(n[i] - n[i - 1], n[1] - n[0]);
    EXPECT_EQ(n.size(), 5U);
  } else if (says("equal")) {
    EXPECT_EQ(n[0], n[1]);
  } else if (says("is larger by")) {
    EXPECT_EQ(n[2], std::max(n[0], n[1]));
    EXPECT_EQ(n[3], n[2] - std::min(n[0], n[1]));
    return n[2];
  } else if (says("are left")) {
    EXPECT_EQ(n[0], n[1] + n[2]);
  } else if (says("in all")) {
    EXPECT_EQ(n[0] * n[1], n[2]);
  } else {
    EXPECT_TRUE(says(" = ") || says("Now ") || says("so they have")) << text;
    int sum = 0;
    for (size_t i = 0; i + 1 < n.size(); ++i) sum += n[i];
    EXPECT_EQ(sum, n.back());
  }
  return n.back();
}

TEST(CorpusTruth, ExercisesAreRight) {
  for_documents("arithmetic", [](const Lines& lines) {
    int largest = 0, count = 0;
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
      const size_t bracket = lines[i].find(") ");
      EXPECT_EQ(std::stoi(lines[i].substr(0, bracket)), ++count);
      largest = std::max(largest, check_exercise(lines[i].substr(bracket + 2)));
    }
    const std::string name = lines[0].substr(14, lines[0].find(',') - 14);
    EXPECT_EQ(lines.back(), name + " solved " + std::to_string(count) +
                                ". The largest answer was " + std::to_string(largest) + ".");
  });
}

TEST(CorpusTruth, BalancesAndTotalsOfLedgersAreExact) {
  static const std::regex trade(
      "\\d+ \\w+ (sold|bought) (\\d+) (.*) at (\\d+) (?:to|from) (.*?)"
      "(?: for .*?)?(?: owes (\\d+)| ([-+]\\d+) = (-?\\d+))"),
      other("\\d+ \\w+ (.*) ([-+]\\d+) = (-?\\d+)");
  for_documents("ledgers", [](const Lines& lines) {
    int balance = numbers_in(lines[1])[0], received = 0, paid = 0, date = 0;
    std::map<std::string, int> prices, debts, wages;
    for (size_t i = 2; i + 1 < lines.size(); ++i) {
      std::smatch m;
      EXPECT_GE(std::stoi(lines[i]), date);
      date = std::stoi(lines[i]);
      int change = 0, stated = 0;
      if (std::regex_match(lines[i], m, trade)) {
        const int price = std::stoi(m[4]), amount = std::stoi(m[2]) * price;
        EXPECT_EQ(prices.emplace(m[3], price).first->second, price) << "prices do not change";
        if (m[6].matched) {
          EXPECT_EQ(std::stoi(m[6]), amount);
          debts[m[5]] += amount;
          continue;
        }
        change = std::stoi(m[7]);
        stated = std::stoi(m[8]);
        EXPECT_EQ(change, m[1] == "sold" ? amount : -amount);
      } else {
        ASSERT_TRUE(std::regex_match(lines[i], m, other)) << lines[i];
        const std::string what = m[1];
        change = std::stoi(m[2]);
        stated = std::stoi(m[3]);
        if (what.ends_with(" settles")) {
          const std::string who = what.substr(0, what.size() - 8);
          ASSERT_TRUE(debts.contains(who)) << who;
          EXPECT_EQ(change, debts[who]);
          debts.erase(who);
        } else if (what.starts_with("wages")) {
          EXPECT_EQ(wages.emplace(what, change).first->second, change);
          EXPECT_EQ(wages.size(), 1U);
        } else {
          EXPECT_EQ(what, "rent");
        }
      }
      balance += change;
      (change > 0 ? received : paid) += std::abs(change);
      EXPECT_EQ(balance, stated);
    }
    int owed = 0;
    for (const auto& [who, amount] : debts) owed += amount;
    EXPECT_EQ(numbers_in(lines.back()), (std::vector<int>{received, paid, owed, balance}));
  });
}

// What follows "the" in the steps that use an ingredient.
std::vector<std::string> ingredients_used(const std::string& steps) {
  std::vector<std::string> names;
  std::istringstream stream(steps);
  for (std::string sentence; std::getline(stream, sentence, '.');) {
    sentence.erase(0, sentence.find_first_not_of(' '));
    bool about_tools = false;
    for (const char* start : {"Light the", "Heat the oven", "Cover the", "Serve the"}) {
      about_tools = about_tools || sentence.starts_with(start);
    }
    size_t at = sentence.find(" the ");
    if (about_tools || at == sentence.npos) continue;
    at = sentence.find_first_not_of("0123456789 ", at + 5);
    names.push_back(sentence.substr(at));
  }
  return names;
}

TEST(CorpusTruth, RecipesUseWhatTheyListAndTimesAddUp) {
  static const std::regex line("- (\\d+) (?:(g|ml|teaspoons?) )?(.*)"),
      part(" (\\d+) (?:g|ml) of the (.*?) and keep (\\d+) (?:g|ml)"), minutes(" for (\\d+) min");
  for_documents("recipes", [](const Lines& lines) {
    const std::string& steps = lines.back();
    std::vector<std::pair<std::string, int>> listed;
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
      std::smatch m;
      ASSERT_TRUE(std::regex_match(lines[i], m, line));
      listed.emplace_back(m[3], std::stoi(m[1]));
    }
    const auto amount_of = [&](const std::string& name) {
      for (const auto& [text, amount] : listed) {
        if (text == name || text.ends_with(" " + name)) return amount;
      }
      return -1;
    };
    std::map<std::string, int> left;
    for (std::sregex_iterator it(steps.begin(), steps.end(), part), end; it != end; ++it) {
      const std::string name = (*it)[2];
      left.emplace(name, amount_of(name));
      EXPECT_EQ(left[name], std::stoi((*it)[1]) + std::stoi((*it)[3])) << name;
      left[name] = std::stoi((*it)[3]);
    }
    for (const std::string& name : ingredients_used(steps)) {
      // "rice with care": some listed "fine rice" must end in words that the name starts with.
      const bool known = std::any_of(listed.begin(), listed.end(), [&](const auto& item) {
        const std::string& text = item.first;
        for (size_t at = 0; at != text.npos; at = text.find(' ', at + 1)) {
          if (name.starts_with(text.substr(at == 0 ? 0 : at + 1))) return true;
        }
        return false;
      });
      EXPECT_TRUE(known) << name << " is used but not listed";
    }
    int sum = 0;
    for (std::sregex_iterator it(steps.begin(), steps.end(), minutes), end; it != end; ++it) {
      sum += std::stoi((*it)[1]);
    }
    EXPECT_EQ(sum, numbers_in(steps).back());
    for (const auto& [text, amount] : listed) {
      const std::string name = text.substr(text.rfind(' ') + 1);
      EXPECT_NE(steps.find(name), steps.npos) << name << " is listed but not used";
    }
  });
}

TEST(CorpusTruth, WeatherSummariesFollowFromTheDays) {
  static const std::regex day(
      "(\\w+): (-?\\d+\\.\\d) to (-?\\d+\\.\\d) °C, .* wind (\\d+) km/h, "
      "(?:(\\d+) mm, )?\\d+ hPa, \\d+ %\\.(.*)");
  static const Lines week = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                             "Friday", "Saturday", "Sunday"};
  for_documents("weather", [](const Lines& lines) {
    double high = -100, low = 100;
    std::string high_text, low_text, high_day, low_day;
    int water = 0, wet = 0;
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
      std::smatch m;
      ASSERT_TRUE(std::regex_match(lines[i], m, day)) << lines[i];
      const auto today = std::find(week.begin(), week.end(), m[1].str());
      if (i > 1) {
        EXPECT_TRUE(lines[i - 1].starts_with(week[(today - week.begin() + 6) % 7]));
      }
      EXPECT_LT(std::stod(m[2]), std::stod(m[3]));
      if (std::stod(m[3]) > high) high = std::stod(m[3]), high_text = m[3], high_day = m[1];
      if (std::stod(m[2]) < low) low = std::stod(m[2]), low_text = m[2], low_day = m[1];
      const int rain = m[5].matched ? std::stoi(m[5]) : 0;
      water += rain;
      wet += rain > 0;
      const std::string warnings = m[6];
      EXPECT_EQ(warnings.find("Frost") != warnings.npos, m[2].str()[0] == '-');
      EXPECT_EQ(warnings.find("Gale") != warnings.npos, std::stoi(m[4]) >= 62);
      EXPECT_EQ(warnings.find("Hot") != warnings.npos, std::stod(m[3]) >= 24);
    }
    const std::string town = lines[0].substr(11, lines[0].find(" from ") - 11);
    EXPECT_TRUE(lines.back().starts_with(
        town + ": high " + high_text + " °C on " + high_day + ", low " + low_text + " °C on " +
        low_day + ", " + std::to_string(water) + " mm on " + std::to_string(wet) + " of " +
        std::to_string(lines.size() - 2) + " days. Next: "))
        << lines.back();
  });
}

TEST(CorpusTruth, PeopleInDialoguesTakeTurnsAndRememberWhatWasSaid) {
  static const std::regex told("I (\\w+) an? (\\w+) (\\w+) (.*)"),
      asked("Where did you \\w+ the (\\w+)\\?"), guess(".* Was the (\\w+) (\\w+)\\?"),
      price("(\\d+) .* at (\\d+) euros!"), plan("(\\w+) at (\\w+), then\\.");
  for_documents("dialogue", [](const Lines& lines) {
    std::map<std::string, std::pair<std::string, std::string>> things;  // adjective; where and when
    std::string place_and_time, agreed;
    for (size_t i = 1; i < lines.size(); ++i) {
      const auto speaker = [](const std::string& line) { return line.substr(0, line.find(": ")); };
      const auto speech = [](const std::string& line) { return line.substr(line.find(": ") + 2); };
      if (i > 1) {
        EXPECT_NE(speaker(lines[i]), speaker(lines[i - 1]));
      }
      if (i > 2) {
        EXPECT_EQ(speaker(lines[i]), speaker(lines[i - 2]));
      }
      std::string text = speech(lines[i]);
      const std::string answer = i + 1 < lines.size() ? speech(lines[i + 1]) : "";
      std::smatch m;
      if (std::regex_match(text, m, guess)) {
        const std::string adjective = things.at(m[1]).first;
        EXPECT_EQ(answer, (m[2] == adjective ? "Yes, " : "No, ") + adjective + ".");
      } else if (std::regex_match(text, m, asked)) {
        const std::string place = answer.substr(7, answer.find(", ") - 7);
        EXPECT_TRUE(answer.starts_with("It was "));
        EXPECT_TRUE(things.at(m[1]).second.starts_with(place)) << place;
      } else if (std::regex_match(text, m, price)) {
        EXPECT_EQ(answer, "That makes " + std::to_string(std::stoi(m[1]) * std::stoi(m[2])) + ".");
      } else if (std::regex_match(text, m, plan)) {
        agreed = m[1].str() + " at " + m[2].str();
      } else if (text.find("See you on ") != text.npos) {
        EXPECT_TRUE(text.ends_with("See you on " + agreed + "."));
      }
      text = text.substr(text.find("! I ") == text.npos ? 0 : text.find("! I ") + 2);
      if (!std::regex_match(text, m, told)) continue;
      // "there" is the place that was named last.
      if (!m[4].str().starts_with("there")) place_and_time = m[4];
      EXPECT_TRUE(things.emplace(m[3], std::pair(m[2].str(), place_and_time)).second);
    }
  });
}

TEST(CorpusTruth, ProgramsDefineWhatTheyUse) {
  static const std::regex word("[a-z_]+"), assigned("^([a-z_]+) = ");
  static const std::set<std::string> known = {"def",   "return", "max", "min", "sum",   "len",
                                              "print", "for",    "i",   "in",  "range", "while",
                                              "if",    "else",   "a",   "b"};
  for_documents("programs", [](const Lines& lines) {
    std::set<std::string> defined = known;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::string code = lines[i].substr(0, lines[i].find("  #"));
      std::smatch m;
      std::string uses = code;
      if (code.starts_with("def ")) {
        defined.insert(code.substr(4, code.find('(') - 4));
      } else if (std::regex_search(code, m, assigned)) {
        uses = m.suffix();
      }
      for (std::sregex_iterator it(uses.begin(), uses.end(), word), end; it != end; ++it) {
        EXPECT_TRUE(defined.contains(it->str())) << it->str();
      }
      if (!m.empty()) defined.insert(m[1]);
    }
    EXPECT_TRUE(lines.back().starts_with("print("));
  });
}

// For tests/oracles/builtin_programs_test.py, which runs them. Renamed when complete: both tests
// may run at the same time.
TEST(CorpusTruth, WritesProgramsForPython) {
  const std::filesystem::path folder = std::filesystem::path(BALLAST_BINARY_DIR) / "oracle",
                              file = folder / "builtin_programs.txt",
                              part = folder / ("builtin_programs." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream out(part);
  for_documents("programs", [&](const Lines& lines) {
    for (const auto& line : lines) out << line << "\n";
    out << "<|endoftext|>\n";
  });
  out.close();
  EXPECT_TRUE(out.good());
  std::filesystem::rename(part, file);
}

}  // namespace
}  // namespace ballast::text
