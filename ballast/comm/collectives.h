// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"

namespace ballast {

// Collectives that autograd can walk back through. The backward pass is a collective too: every
// worker must take part in it, in the same order, and the communicator must still be there.

// x [N * n, ...]: block r goes to worker r; block s of the result came from worker s. [N * n, ...]
at::Tensor all_to_all(Communicator& group, const at::Tensor& x, Label label);

// x [sum of send, ...]: send[r] rows go to worker r. Returns [sum of receive, ...].
// REQUIRES: receive[s] here is send[rank] on worker s (Communicator::exchange_rows).
at::Tensor all_to_all(Communicator& group, const at::Tensor& x, const RowsOfWorker& send,
                      const RowsOfWorker& receive, Label label);

}  // namespace ballast
