// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ballast/comm/communicator.h"

namespace ballast::python {

// The workers of a torch.distributed process group, by the group's name (`group.group_name`). It
// has what layers of experts need: all_to_all, all_reduce, all_gather and barrier. An empty name: a
// worker that is alone.
std::shared_ptr<comm::Communicator> open_process_group(const std::string& name);

}  // namespace ballast::python
