// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ballast {

// The user's mistake or the machine's state (a missing file, a bad flag, a full disk): the message
// names the thing and says what to do. The program prints it alone and exits with code 2.
// Anything else that is thrown is our own fault and ends with code 1.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws UserError with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw UserError(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace ballast
