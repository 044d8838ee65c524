// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/program.h"

namespace ballast::cli {

// What a shell offers for a value that is none of a few choices.
enum class Offer { kNothing, kFiles, kFolders };

// An option or a positional argument, as its command declares it.
struct DeclaredOption {
  std::vector<std::string> names;  // "-h", "--help"; empty: positional alone
  std::string positional;          // "CONFIG"; empty: none
  std::string type;                // "FILE"; empty: it takes no value, or says nothing of it
  std::string default_value;       // empty: none, or the help tells it
  std::string help, group;
  std::vector<std::string> choices;  // all that its value may be; empty: anything
  bool takes_value = false, is_required = false, repeats = false;

  Offer offer() const;
};

struct DeclaredCommand {
  std::string name;           // "ballast bench step"
  std::string about, footer;  // as help has them
  std::vector<DeclaredOption> options;
  std::vector<DeclaredCommand> commands;

  std::string own_name() const;  // "step"
};

// All that the program's help knows. What it does not list is left out.
DeclaredCommand declarations_of(const CLI::App& app);

nlohmann::json to_json(const DeclaredCommand& command);
DeclaredCommand declared_command(const nlohmann::json& json);

// A command that help does not list: prints the declarations as one line of JSON.
void add_declarations(CLI::App& app, Action& chosen);

}  // namespace ballast::cli
