// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/declarations.h"

namespace ballast::cli {

// Scripts by which a shell completes commands, options, and values where they are one of a few;
// elsewhere files or folders, where the option takes one. They need nothing else to be installed.
std::string bash_completion(const DeclaredCommand& program);
std::string zsh_completion(const DeclaredCommand& program);
std::string fish_completion(const DeclaredCommand& program);

// The program and all its commands, each before its own.
std::vector<const DeclaredCommand*> all_commands(const DeclaredCommand& program);

// What completes an argument that is no option: its choices, or files.
struct OfferedWords {
  std::vector<std::string> words;  // commands, or choices of a positional argument
  Offer offer = Offer::kNothing;
};
OfferedWords offered_words(const DeclaredCommand& command);

// The first line of a help text, for the shells that show it beside the option.
std::string short_help(const std::string& help);

// A word in single quotes, as all three shells read it.
std::string shell_quoted(const std::string& text);

}  // namespace ballast::cli
