// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ballast::comm {

// A worker's last act before it ends the job: it leaves a process behind. Ten seconds later that
// ends mpirun (or its daemon) and what else mpirun has started on this machine, if they are still
// there. Over a link that is down, or with a worker stopped at the wrong moment, they would stay
// for ever. Does nothing where srun or our launcher has started the workers: those look after them.
void leave_undertaker() noexcept;

}  // namespace ballast::comm
