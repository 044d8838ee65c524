// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast {

// From now on a crash (SIGSEGV, SIGILL, SIGFPE, SIGABRT) says a line on stderr before it ends the
// program as it would have. Libraries below us crash where they get no memory; nlohmann's JSON asks
// for some when it is destroyed. For the program; once. Handlers of others, a sanitizer's, are left
// alone.
void explain_crashes();

}  // namespace ballast
