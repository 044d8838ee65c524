// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/text/grammar.h"

// The grammars of the built-in corpus, one per domain and file.
// A grammar must be unambiguous: no text has two derivations (tests search for a second one).
namespace ballast::text {

void write_arithmetic(Chooser& out);  // exercises with right answers
void write_dialogue(Chooser& out);    // two people; what was said is remembered
void write_ledger(Chooser& out);      // a shop's book; balances and totals are exact
void write_program(Chooser& out);     // a small program with the output it prints
void write_recipe(Chooser& out);      // steps use the listed ingredients; times add up
void write_weather(Chooser& out);     // some days of weather and their summary

}  // namespace ballast::text
