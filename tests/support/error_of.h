// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/system/error.h"

namespace ballast::test {

// The message of the UserError that `action` throws, or "no error".
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ballast::test
