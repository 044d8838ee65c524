// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

constexpr Words kTopics = Words::zipf(
    {"stock of the bakery", "points of the game", "seats on the ferry", "a day at the farm",
     "the water tank", "books in the library", "the bus to town", "savings of a year",
     "bees in the garden", "the long walk", "tickets for the concert", "a very small bank"});
constexpr Words kVariables = Words::zipf(
    {"total", "count", "apples", "boxes",  "price", "speed", "level",  "seats",  "bees",  "pages",
     "coins", "score", "water",  "lamps",  "trees", "miles", "guests", "stones", "cups",  "bonus",
     "rest",  "width", "height", "weight", "days",  "fish",  "ropes",  "wheels", "depth", "limit",
     "stock", "birds", "votes",  "lines",  "power", "tax",   "debt",   "gain",   "crew",  "tons"});
constexpr Words kLists =
    Words::zipf({"prices", "ages", "sizes", "marks", "steps", "loads", "wins", "hours"});
constexpr Words kFunctions = Words::zipf({"combine", "grow", "mix", "scale", "adjust", "shift",
                                          "blend", "weigh", "join", "raise_by", "fix", "merge"});
constexpr Words kComparisons = Words::uniform({" > ", " < "});

struct Variable {
  size_t name;
  int value;
};

// Returns a function of a and b with one number in it.
struct Function {
  size_t name, form;
  int number;

  int operator()(int a, int b) const {
    switch (form) {
      case 0:
        return a * number + b;
      case 1:
        return a + b + number;
      case 2:
        return a - b + number;
      default:
        return std::max(a, b) + number;
    }
  }
};

struct List {
  size_t name;
  std::vector<int> values;
};

constexpr int kLarge = 150;  // larger values are not multiplied further

struct Program {
  Chooser& out;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<List> lists;
  uint64_t used_names = 0, used_functions = 0, used_lists = 0;

  // Writes the name of a defined variable whose value is in [low, high]; there must be one.
  Variable& say_variable(int low = -100000, int high = 100000) {
    std::vector<std::string_view> names;
    std::vector<size_t> indices;
    for (size_t i = 0; i < variables.size(); ++i) {
      if (variables[i].value < low || variables[i].value > high) continue;
      names.push_back(kVariables[variables[i].name]);
      indices.push_back(i);
    }
    return variables[indices[out.say_one_of(names)]];
  }
  bool any_variable(int low, int high) const {
    return std::any_of(variables.begin(), variables.end(), [&](const Variable& variable) {
      return variable.value >= low && variable.value <= high;
    });
  }
  // A number or a variable that is not large.
  int say_operand() {
    if (any_variable(-kLarge, kLarge) && out.chance(1, 2))
      return say_variable(-kLarge, kLarge).value;
    return out.say_number(1, 50);
  }
  size_t say_new_name() {
    const size_t name = out.say(kVariables, used_names);
    used_names |= only(name);
    out.write(" = ");
    return name;
  }
};

void define_function(Program& program) {
  Chooser& out = program.out;
  Function function{};
  out.write("def ");
  function.name = out.say(kFunctions, program.used_functions);
  program.used_functions |= only(function.name);
  out.write("(a, b):\n    return ");
  static constexpr std::array<std::string_view, 4> kStarts = {"a * ", "a + b + ", "a - b + ",
                                                              "max(a, b) + "};
  function.form = out.say_one_of(kStarts);
  function.number = out.say_number(2, 9);
  if (function.form == 0) out.write(" + b");
  out.write("\n");
  program.functions.push_back(function);
}

void define_variable(Program& program) {
  const size_t name = program.say_new_name();
  program.variables.push_back({name, program.out.say_number(1, 99)});
}

void define_by_expression(Program& program) {
  Chooser& out = program.out;
  const size_t name = program.say_new_name();
  int value = program.say_variable(-kLarge, kLarge).value;
  switch (out.choose({4, 3, 2})) {
    case 0:
      out.write(" + ");
      value += program.say_operand();
      break;
    case 1:
      out.write(" - ");
      value -= program.say_operand();
      break;
    default:
      out.write(" * ");
      value *= out.say_number(2, 6);
  }
  program.variables.push_back({name, value});
}

void define_by_call(Program& program) {
  Chooser& out = program.out;
  const size_t name = program.say_new_name();
  std::vector<std::string_view> names;
  for (const Function& function : program.functions) names.push_back(kFunctions[function.name]);
  const Function& function = program.functions[out.say_one_of(names)];
  out.write("(");
  const int a = program.say_operand();
  out.write(", ");
  const int b = program.say_operand();
  out.write(")");
  program.variables.push_back({name, function(a, b)});
}

void define_list(Program& program) {
  Chooser& out = program.out;
  List list{out.say(kLists, program.used_lists), {}};
  program.used_lists |= only(list.name);
  out.write(" = [");
  for (;;) {
    list.values.push_back(out.say_number(1, 30));
    if (list.values.size() >= 3 && (list.values.size() == 6 || out.chance(1, 3))) break;
    out.write(", ");
  }
  out.write("]");
  program.lists.push_back(std::move(list));
}

void define_by_list(Program& program) {
  Chooser& out = program.out;
  const size_t name = program.say_new_name();
  static constexpr std::array<std::string_view, 4> kFolds = {"sum(", "max(", "min(", "len("};
  const size_t fold = out.say_one_of(kFolds);
  std::vector<std::string_view> names;
  for (const List& list : program.lists) names.push_back(kLists[list.name]);
  const std::vector<int>& values = program.lists[out.say_one_of(names)].values;
  out.write(")");
  const int value = fold == 0   ? std::accumulate(values.begin(), values.end(), 0)
                    : fold == 1 ? *std::max_element(values.begin(), values.end())
                    : fold == 2 ? *std::min_element(values.begin(), values.end())
                                : static_cast<int>(values.size());
  program.variables.push_back({name, value});
}

// " += 3": returns the change.
int write_change(Program& program) {
  const bool adds = program.out.chance(3, 5);
  program.out.write(adds ? " += " : " -= ");
  const int operand = program.say_operand();
  return adds ? operand : -operand;
}

void update_variable(Program& program) {
  Variable& variable = program.say_variable();
  variable.value += write_change(program);
}

void write_for(Program& program) {
  Chooser& out = program.out;
  out.write("for i in range(");
  const int times = out.say_number(2, 5);
  out.write("):\n    ");
  Variable& variable = program.say_variable();
  const bool adds = out.chance(3, 5);
  out.write(adds ? " += " : " -= ");
  const int step = out.say_number(1, 20);
  variable.value += times * (adds ? step : -step);
}

void write_while(Program& program) {
  Chooser& out = program.out;
  out.write("while ");
  Variable& variable = program.say_variable(10, 400);
  out.write(" > ");
  const int bound = out.say_number(1, 30);
  out.write(":\n    ", kVariables[variable.name], " -= ");
  const int step = out.say_number(3, 20);
  while (variable.value > bound) variable.value -= step;
}

void write_if(Program& program) {
  Chooser& out = program.out;
  out.write("if ");
  const int value = program.say_variable().value;
  const bool greater = out.say(kComparisons) == 0;
  const int bound = out.say_number(1, 60);
  const bool holds = greater ? value > bound : value < bound;
  out.write(":\n    ");
  Variable& variable = program.say_variable();
  const int if_true = write_change(program);
  int if_false = 0;
  if (out.chance(1, 2)) {
    out.write("\nelse:\n    ", kVariables[variable.name]);
    if_false = write_change(program);
  }
  variable.value += holds ? if_true : if_false;
}

void write_print(Program& program) {
  Chooser& out = program.out;
  out.write("print(");
  const Variable& first = program.say_variable();
  if (program.variables.size() > 1 && out.chance(1, 3)) {
    out.write(", ");
    const Variable& second = program.say_variable();
    out.write(")  # ", first.value, " ", second.value);
  } else {
    out.write(")  # ", first.value);
  }
}

void write_statement(Program& program) {
  const uint32_t few = program.variables.size() < 9, small = program.any_variable(-kLarge, kLarge);
  const uint32_t callable = !program.functions.empty(), shrinkable = program.any_variable(10, 400);
  const uint32_t new_list = program.lists.size() < 2, listed = !program.lists.empty();
  switch (program.out.choose({4 * few, 4 * few * small, 6 * few * callable, 4, 3, 2 * shrinkable, 3,
                              5, 2 * new_list, 4 * few * listed})) {
    case 0:
      define_variable(program);
      break;
    case 1:
      define_by_expression(program);
      break;
    case 2:
      define_by_call(program);
      break;
    case 3:
      update_variable(program);
      break;
    case 4:
      write_for(program);
      break;
    case 5:
      write_while(program);
      break;
    case 6:
      write_if(program);
      break;
    case 7:
      write_print(program);
      break;
    case 8:
      define_list(program);
      break;
    default:
      define_by_list(program);
  }
  program.out.write("\n");
}

}  // namespace

void write_program(Chooser& out) {
  Program program{out, {}, {}, {}, 0, 0, 0};
  out.write("# ");
  out.say(kTopics);
  out.write("\n");
  const size_t num_functions = out.choose({2, 3, 2});
  for (size_t i = 0; i < num_functions; ++i) define_function(program);
  define_variable(program);
  out.write("\n");
  define_variable(program);
  out.write("\n");
  for (int statements = 0; statements < 12 || (statements < 30 && !out.chance(1, 8));
       ++statements) {
    write_statement(program);
  }
  out.write("print(", kVariables[program.variables.back().name], ")  # ",
            program.variables.back().value, "\n");
}

}  // namespace ballast::text
