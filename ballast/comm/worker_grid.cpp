// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/worker_grid.h"

#include <fmt/format.h>

#include "ballast/comm/single.h"

namespace ballast::comm {
namespace {

// Everyone's group is the World's to keep.
std::shared_ptr<Communicator> borrowed(Communicator& group) {
  return {std::shared_ptr<Communicator>(), &group};
}

}  // namespace

WorkerGrid::WorkerGrid(Communicator& everyone) : WorkerGrid(everyone, 1) {}

WorkerGrid::WorkerGrid(Communicator& everyone, int64_t model_parallel) : everyone_(&everyone) {
  TORCH_CHECK(model_parallel >= 1 && everyone.size() % model_parallel == 0,
              "WorkerGrid: ", model_parallel, " shards do not divide ", everyone.size(),
              " workers");
  const auto shards = static_cast<int>(model_parallel);
  if (shards == 1) {
    replicas_ = borrowed(everyone);
    shards_ = open_single_group("a lone shard", everyone.rank());
  } else if (shards == everyone.size()) {
    replicas_ = open_single_group("a lone replica", everyone.rank());
    shards_ = borrowed(everyone);
  } else {
    const int replica = everyone.rank() / shards, shard = everyone.rank() % shards;
    replicas_ = everyone.split(shard, replica, fmt::format("the replicas of shard {}", shard));
    shards_ = everyone.split(replica, shard, fmt::format("the shards of replica {}", replica));
  }
}

}  // namespace ballast::comm
