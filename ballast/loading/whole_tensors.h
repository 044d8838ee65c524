// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/checkpoint/safetensors.h"
#include "ballast/comm/communicator.h"
#include "ballast/comm/worker_grid.h"
#include "ballast/loading/weights.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::loading {

// All tensors of a flat buffer but the experts', whole and on the host, ready to be written. Those
// that are divided among the shards of a replica are put together, each by one of the shards: they
// take turns, so that each holds about its share of the bytes and none the whole model. Where the
// buffer is state that workers divide, all of them take turns.
class WholeTensors {
 public:
  // How a divided tensor goes to the shard that puts it together: in rows of `row` elements, the
  // longest that fit all parts, since MPI counts rows, and to 2^31 only.
  struct Way {
    int64_t row = 1;
    comm::RowsOfWorker send, receive;
  };
  static Way way_to(int writer, const comm::Communicator& shards, const parameters::Slice& slice);

  // Of a choice without experts. Collective among the shards; among everyone where state is
  // divided.
  WholeTensors(const parameters::ParameterTable& table, const at::Tensor& flat,
               const SegmentChoice& choice, const comm::WorkerGrid& grid);

  // This worker's share; valid as long as this object.
  const std::vector<checkpoint::TensorView>& views() const { return views_; }

 private:
  std::vector<at::Tensor> kept_;
  std::vector<checkpoint::TensorView> views_;
};

}  // namespace ballast::loading
