// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ballast/experts/dispatch.h"
#include "ballast/experts/routing.h"
#include "ballast/experts/shuffle_parts.h"

namespace ballast::experts {

// The paper's shuffle: the tokens of each group are permuted at random and an equal part of them
// goes to every group, so that each group becomes a sample of the whole batch. Where G does not
// divide T/G, parts differ by one token and groups keep their size.
// Several workers exchange rows. One alone leaves them where they are: the order says which of them
// form a group.
struct Shuffle {
  std::optional<RowExchange> way = {};
  TokenOrder order = {};
};

// Drawn where it is used, from keys that are an input of the step; nothing waits for a GPU.
// A pure function of (seed, step, micro-step, layer, position): not of the number of workers.
Shuffle shuffle_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                   const step::InputOf& input);

// The shuffles of a pass through layers whose tokens have one shape. They are drawn together when
// the first is asked for: on a GPU a launch for all takes about as
// long as a launch for one.
class PassShuffles {
 public:
  explicit PassShuffles(std::vector<int64_t> layers) : layers_(std::move(layers)) {}

  // As shuffle_of(). REQUIRES: it is one of the layers; all calls have the same other arguments.
  const Shuffle& of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                    const step::InputOf& input);

 private:
  std::vector<int64_t> layers_;
  std::vector<Shuffle> drawn_;
};

}  // namespace ballast::experts
