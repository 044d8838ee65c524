// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/declarations.h"

namespace ballast::cli {

// What all commands of `app` declare; in the place of `bench` stands what that program itself says.
DeclaredCommand declarations_with_bench(const CLI::App& app);

}  // namespace ballast::cli
