// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"

namespace ballast::text {
namespace {

constexpr Words kThings = Words::zipf(
    {"apples", "marbles", "stamps",    "books", "coins",   "pears",   "shells",   "buttons",
     "cards",  "pencils", "nuts",      "eggs",  "cups",    "ribbons", "tickets",  "candles",
     "stones", "keys",    "plums",     "beads", "letters", "bricks",  "feathers", "corks",
     "acorns", "spoons",  "postcards", "lamps", "hats",    "maps",    "bottles",  "photographs",
     "boats",  "puzzles", "roses",     "kites"});
constexpr Words kContainers = Words::zipf({"boxes", "bags", "baskets", "jars", "drawers", "crates",
                                           "tins", "shelves", "sacks", "cases", "rows", "bowls"});
constexpr Words kGains = Words::zipf(
    {"buys", "finds", "gets", "picks up", "wins", "borrows", "makes", "earns", "counts"});
constexpr Words kLosses =
    Words::zipf({"gives", "sells", "lends", "sends", "hands", "promises", "loses"});

// Small numbers are frequent, as in real exercises. The ranges do not overlap.
int say_amount(Chooser& out) {
  switch (out.choose({3, 5, 2})) {
    case 0:
      return out.say_number(2, 12);
    case 1:
      return out.say_number(13, 99);
    default:
      return out.say_number(100, 999);
  }
}

// Each exercise returns its answer.

int write_sum(Chooser& out) {
  const int a = say_amount(out);
  out.write(" + ");
  const int b = say_amount(out);
  out.write(" = ", a + b);
  return a + b;
}

int write_difference(Chooser& out) {
  const int a = say_amount(out);
  out.write(" - ");
  const int b = out.say_number(1, a);
  out.write(" = ", a - b);
  return a - b;
}

int write_product(Chooser& out) {
  const int a = out.say_number(2, 19);
  out.write(" * ");
  const int b = out.say_number(2, 12);
  out.write(" = ", a * b);
  return a * b;
}

int write_quotient(Chooser& out) {
  const int a = out.say_number(20, 99);
  out.write(" / ");
  const int b = out.say_number(2, 9);
  out.write(" = ", a / b);
  if (a % b != 0) out.write(" rest ", a % b);
  return a / b;
}

int write_long_sum(Chooser& out) {
  int sum = 0;
  for (int terms = 1;; ++terms) {
    sum += out.say_number(1, 20);
    if (terms >= 3 && (terms == 6 || out.chance(1, 2))) break;
    out.write(" + ");
  }
  out.write(" = ", sum);
  return sum;
}

int write_sequence(Chooser& out) {
  const int start = out.say_number(1, 40);
  out.write(", ");
  const int step = 2 + static_cast<int>(out.choose_below(11));
  out.write(start + step, ", ", start + 2 * step, ", ", start + 3 * step, ": next is ",
            start + 4 * step);
  return start + 4 * step;
}

int write_comparison(Chooser& out) {
  const int a = say_amount(out);
  out.write(" and ");
  const int b = say_amount(out);
  if (a == b) {
    out.write(": equal");
  } else {
    out.write(": ", std::max(a, b), " is larger by ", std::abs(a - b));
  }
  return std::max(a, b);
}

int write_chain(Chooser& out) {
  out.write("Take ");
  int value = say_amount(out);
  for (int steps = 1;; ++steps) {
    const uint32_t can_grow = value <= 300, can_halve = value % 2 == 0, can_shrink = value > 30;
    switch (out.choose({6, 5 * can_shrink, 3 * can_grow, 3 * can_halve, can_grow})) {
      case 0:
        out.write(", add ");
        value += out.say_number(2, 60);
        break;
      case 1:
        out.write(", subtract ");
        value -= out.say_number(2, 30);
        break;
      case 2:
        out.write(", double");
        value *= 2;
        break;
      case 3:
        out.write(", halve");
        value /= 2;
        break;
      default:
        out.write(", triple");
        value *= 3;
    }
    out.write(": ", value);
    if (steps >= 2 && (steps == 6 || out.chance(1, 3))) return value;
  }
}

// "17 small stamps", "17 stamps": returns the thing.
size_t say_things(Chooser& out) {
  if (out.chance(1, 2)) {
    out.say(kAdjectives);
    out.write(" ");
  }
  return out.say(kThings);
}

int write_gain_or_loss(Chooser& out, size_t person) {
  out.write(" has ");
  const int a = say_amount(out);
  out.write(" ");
  const size_t thing = say_things(out);
  switch (out.choose({4, 4, 3})) {
    case 0: {
      out.write(" and ");
      out.say(kGains);
      out.write(" ");
      const int b = say_amount(out);
      out.write(". Now ", she_or_he(person), " has ", a + b, ".");
      return a + b;
    }
    case 1: {
      out.write(" and ");
      out.say(kLosses);
      out.write(" ");
      const int b = out.say_number(1, a);
      out.write(" to ");
      out.say(kPeople, only(person));
      out.write(". ", a - b, " are left.");
      return a - b;
    }
    default: {
      out.write(", ");
      out.say(kPeople, only(person));
      out.write(" has ");
      const int b = say_amount(out);
      out.write(", so they have ", a + b, " ", kThings[thing], ".");
      return a + b;
    }
  }
}

int write_filling(Chooser& out) {
  out.write(" fills ");
  const int a = out.say_number(2, 19);
  out.write(" ");
  out.say(kContainers);
  out.write(" with ");
  const int b = out.say_number(2, 12);
  out.write(" ");
  say_things(out);
  out.write(" each, ", a * b, " in all.");
  return a * b;
}

// A story about the pupil or a friend.
int write_story(Chooser& out, size_t pupil) {
  size_t person = pupil;
  if (out.chance(1, 2)) {
    out.write(kPeople[pupil]);
  } else {
    person = out.say(kPeople, only(pupil));
  }
  return out.chance(1, 4) ? write_filling(out) : write_gain_or_loss(out, person);
}

int write_exercise(Chooser& out, size_t pupil) {
  switch (out.choose({8, 6, 6, 4, 4, 4, 4, 6, 20})) {
    case 0:
      return write_sum(out);
    case 1:
      return write_difference(out);
    case 2:
      return write_product(out);
    case 3:
      return write_quotient(out);
    case 4:
      return write_long_sum(out);
    case 5:
      return write_sequence(out);
    case 6:
      return write_comparison(out);
    case 7:
      return write_chain(out);
    default:
      return write_story(out, pupil);
  }
}

}  // namespace

void write_arithmetic(Chooser& out) {
  out.write("Exercises for ");
  const size_t pupil = out.say(kPeople);
  out.write(", ");
  out.say(kWeekdays);
  out.write("\n");
  int largest = 0, number = 1;
  for (;; ++number) {
    out.write(number, ") ");
    largest = std::max(largest, write_exercise(out, pupil));
    out.write("\n");
    if (number >= 9 && (number == 20 || out.chance(1, 6))) break;
  }
  out.write(kPeople[pupil], " solved ", number, ". The largest answer was ", largest, ".\n");
}

}  // namespace ballast::text
