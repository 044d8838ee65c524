// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast {

// A worker's last act before it ends the job: leaves a process behind that ends mpirun (or its
// daemon), and what else that has started on this machine, where they have not ended ten seconds
// later. Over a link that is down, or with a worker stopped at the wrong moment, they would stay
// for ever. Nothing where srun or our launcher has started the workers: they look after them.
void leave_undertaker() noexcept;

}  // namespace ballast
