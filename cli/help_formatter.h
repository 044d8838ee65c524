// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ballast::cli {

// Help in at most 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

 private:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
};

}  // namespace ballast::cli
