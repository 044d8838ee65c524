// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace c10 {
class Error;
}

namespace ballast::cli {

// What to say where memory could not be had, with the numbers that are known.
std::string out_of_memory();  // std::bad_alloc
// Empty: the error is another one.
std::string out_of_memory(const c10::Error& error);

}  // namespace ballast::cli
