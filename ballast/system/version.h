// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ballast {

// The version and, where it was built from a git checkout, the commit: "0.1.0 (b554d24)".
// A commit with changes that were not committed ends in "-dirty".
std::string version();

}  // namespace ballast
