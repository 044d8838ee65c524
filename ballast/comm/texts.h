// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// Collective. The texts of all workers, of any length, in their order; on all of them.
std::vector<std::string> gather_texts(Communicator& group, const std::string& text, Label label);

}  // namespace ballast::comm
