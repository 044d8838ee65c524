// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ballast::config {

// As people write it: "1,048,576", "-1", "0.99".
std::string plain_number(double value);

}  // namespace ballast::config
