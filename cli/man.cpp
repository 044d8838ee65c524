// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "ballast/system/file.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/man_page.h"

namespace ballast::cli {
namespace {

constexpr const char* kExamples = R"(
Examples
  ballast man --out ~/.local/share/man/man1      then `man ballast-train` finds it
  ballast man --out . && man ./ballast-train.1
  ballast man | man -l -                         the page of the program itself
)";

int write_pages(const CLI::App& app, const std::string& out) {
  const DeclaredCommand program = declarations_with_bench(app);
  if (out.empty()) {
    fmt::print("{}", man_page(program, program));
    return 0;
  }
  make_folder(out);
  for (const DeclaredCommand* command : all_commands(program)) {
    const fs::path file = fs::path(out) / (page_name(*command) + ".1");
    write_text_atomically(file, man_page(*command, program));
    fmt::print("{}\n", file.string());
  }
  return 0;
}

}  // namespace

void add_man(CLI::App& app, Action& chosen) {
  CLI::App* command = add_command(
      app, "man", "Write manual pages, one for each command, or print the first", kExamples);
  const auto out = std::make_shared<std::string>();
  command->add_option("--out", *out, "the folder that gets ballast.1, ballast-train.1 and so on")
      ->type_name("FOLDER");
  command->callback(
      [&app, out, &chosen] { chosen = [&app, out] { return write_pages(app, *out); }; });
}

}  // namespace ballast::cli
