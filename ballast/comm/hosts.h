// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ballast::comm {

// Machines as mpirun's --host takes them, with the number of workers on each: "node1:2,node2:2".
// `hosts` are "name" or "name:workers", all alike; by their names alone they share the workers
// evenly, the first ones get what is left over. None: this machine. UserError: they do not fit.
std::string mpirun_hosts(const std::vector<std::string>& hosts, int workers);

}  // namespace ballast::comm
