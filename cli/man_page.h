// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/declarations.h"

namespace ballast::cli {

// A command's manual page, in troff with the macros `man`. Its name in section 1 is
// "ballast-train".
std::string man_page(const DeclaredCommand& command, const DeclaredCommand& program);

// "ballast-bench-step" of "ballast bench step".
std::string page_name(const DeclaredCommand& command);

}  // namespace ballast::cli
