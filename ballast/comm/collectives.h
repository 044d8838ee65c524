// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// Collectives that autograd can walk back through. The backward pass is a collective too: every
// worker must take part in it, in the same order, and the communicator must still be there.

// x [sum of send, ...]: send[r] rows go to worker r. Returns [sum of receive, ...].
// REQUIRES: receive[s] here is send[rank] on worker s.
at::Tensor all_to_all(Communicator& group, const at::Tensor& x, const RowsOfWorker& send,
                      const RowsOfWorker& receive, Label label);

// The same in equal parts, x [N * n, ...], in two halves, with other work between them. begin()
// sends x. finish() waits: until then nobody may write x, or read what begin() returned. Backward,
// finish() sends the gradient and begin() waits. Once each; both are in the graph, or neither.
class RowsUnderWay {
 public:
  RowsUnderWay(Communicator& group, Label label);
  at::Tensor begin(const at::Tensor& x) const;          // REQUIRES: N divides its rows
  at::Tensor finish(const at::Tensor& arriving) const;  // [N * n, ...]

 private:
  struct Flight;
  struct Kept;
  struct Begin;
  struct Finish;
  std::shared_ptr<Flight> flight_;
};

// What follows goes between tensors that all workers of a group hold alike and tensors that are
// divided among them. The loss is alike too: each worker has all of it, and all of its gradient by
// a tensor that is alike. For a group of one they are all the identity, and cost nothing.

// Parts -> their sum, alike.
at::Tensor sum_over_shards(Communicator& shards, const at::Tensor& x, Label label);

// How rows are divided: in order, and as evenly as can be; there may be fewer than workers.
RowsOfWorker divide_rows(int64_t rows, int workers);
// Where this worker's begin.
int64_t first_own_row(const Communicator& shards, const RowsOfWorker& rows);
// x [sum of rows, ...], alike -> this worker's rows [rows[rank], ...].
at::Tensor own_rows(Communicator& shards, const at::Tensor& x, const RowsOfWorker& rows,
                    Label label);
// The reverse: [rows[rank], ...] -> [sum of rows, ...], alike.
at::Tensor gather_rows(Communicator& shards, const at::Tensor& own, const RowsOfWorker& rows,
                       Label label);

}  // namespace ballast::comm
