// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast::comm {

// Before MPI starts: settings of OpenMPI that depend on where this worker runs. What people have
// set stays.
void choose_settings();

}  // namespace ballast::comm
