// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ballast/experts/dispatch.h"
#include "ballast/experts/routing.h"

namespace ballast::experts {

struct ShuffleShape {
  int64_t groups = 1;             // G, over all workers
  int64_t tokens_of_group = 0;    // T/G
  int64_t rank = 0, workers = 1;  // workers divide groups
};

// The paper's shuffle: the tokens of each group are permuted at random and an equal part of them
// goes to every group, so that each group becomes a sample of the whole batch. Where G does not
// divide T/G, parts differ by one token and groups keep their size.
// Several workers exchange rows. One alone leaves them where they are: the order says which of them
// form a group.
struct Shuffle {
  std::optional<RowExchange> way = {};
  TokenOrder order = {};
};

// Made by the host, as an input of the step.
// A pure function of (seed, step, micro-step, layer, position): not of the number of workers.
Shuffle shuffle_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                   const step::InputOf& input);

}  // namespace ballast::experts
