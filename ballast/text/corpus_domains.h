// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "ballast/text/grammar.h"

// The grammars of the built-in corpus, one per domain and file, and the words they share.
// A grammar must be unambiguous: no text has two derivations (tests search for a second one).
namespace ballast {

void write_arithmetic(Chooser& out);  // exercises with right answers
void write_dialogue(Chooser& out);    // two people; what was said is remembered
void write_ledger(Chooser& out);      // a shop's book; balances and totals are exact
void write_program(Chooser& out);     // a small program with the output it prints
void write_recipe(Chooser& out);      // steps use the listed ingredients; times add up
void write_weather(Chooser& out);     // some days of weather and their summary

// First names; women and men take turns.
extern const Words kPeople;
inline bool is_woman(size_t person) { return person % 2 == 0; }
inline std::string_view she_or_he(size_t person) { return is_woman(person) ? "she" : "he"; }
inline std::string_view her_or_him(size_t person) { return is_woman(person) ? "her" : "him"; }

extern const Words kTowns;
extern const Words kWeekdays;    // uniform, Monday first
extern const Words kMonths;      // uniform, January first
extern const Words kAdjectives;  // of things
extern const Words kObjects;     // things one can carry
extern const Words kRelations;   // "under", "next to"
extern const Words kSpots;       // "table", "bridge"

inline constexpr int kMonthDays[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

inline uint64_t only(size_t i) { return uint64_t{1} << i; }  // the set {i}

// "a red" or "an old": writes the article and an adjective, which it returns.
size_t say_a_adjective(Chooser& out);

}  // namespace ballast
