// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shuffle.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/parallel_ranges.h"
#include "ballast/system/index_permutation.h"
#include "ballast/system/random.h"

namespace ballast::experts {

// keys [L, P] int64, of the groups of worker `rank`, for L shuffles. Writes [L, 2, T] int64 each,
// orders and their inverses: the row of each slot that is sent, and the arrival of each place where
// that is wanted.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "draw_shuffle(Tensor keys, int rank, int workers, Tensor(a!) sent, Tensor(b!)? arrived) -> "
      "()");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;

void draw_on_cpu(const Tensor& keys, int64_t rank, int64_t workers, const Tensor& sent,
                 const OptionalTensor& arrived) {
  const int64_t local = keys.size(1), size = sent.size(2);
  const ShuffleShape shape{local * workers, size / local, rank, workers};
  const ShuffleParts parts(shape);
  kernels::parallel_ranges(keys.numel() * shape.groups, 1, [&](int64_t index, int64_t end) {
    for (; index < end; ++index) {
      const int64_t layer = index / (local * shape.groups);
      const int64_t group = index / shape.groups % local, other = index % shape.groups;
      const auto* const key = keys.const_data_ptr<int64_t>() + layer * local;
      auto* const slots = sent.mutable_data_ptr<int64_t>() + layer * 2 * size;
      auto* const places =
          arrived ? arrived->mutable_data_ptr<int64_t>() + layer * 2 * size : nullptr;
      const SentPart out = parts.sent(shape.own().begin + group, other);
      const IndexPermutation order(static_cast<uint64_t>(shape.tokens_of_group),
                                   static_cast<uint64_t>(key[group]));
      for (int64_t i = 0; i < out.size; ++i) {
        const auto token = static_cast<int64_t>(order(static_cast<uint64_t>(out.first + i)));
        set_both(slots, size, out.slot + i, group * shape.tokens_of_group + token);
      }
      if (places == nullptr) continue;
      const ReceivedPart in = parts.received(other, shape.own().begin + group);
      for (int64_t i = 0; i < in.size; ++i) set_both(places, size, in.place + i, in.arrival + i);
    }
  });
}

uint64_t key_of(const TrainingRoute& route, int64_t layer, int64_t group) {
  const uint64_t of_step = random_bits(route.seed, "shuffle", route.step, route.micro_step);
  return random_bits(of_step, "shuffle", static_cast<uint64_t>(layer),
                     static_cast<uint64_t>(group));
}

// [L, P] int64, of this worker's groups.
Tensor keys_of(const TrainingRoute& route, const std::vector<int64_t>& layers,
               const ShuffleShape& shape, const step::InputOf& input) {
  return step::take_input(input, [=](uint64_t step) {
    const Tensor keys = at::empty({std::ssize(layers), shape.local()}, at::kLong);
    TrainingRoute of_step = route;
    of_step.step = step;
    auto* key = keys.mutable_data_ptr<int64_t>();
    for (const int64_t layer : layers) {
      for (int64_t i = 0; i < shape.local(); ++i)
        *key++ = static_cast<int64_t>(key_of(of_step, layer, shape.own().begin + i));
    }
    return keys;
  });
}

// Of one layer: sent [2, T], and arrived where tokens come in another order than they stand.
Shuffle shuffle_by(const Tensor& sent, const OptionalTensor& arrived, const ShuffleShape& shape) {
  if (shape.workers == 1) return {.order = {sent[0], sent[1]}};
  RowExchange way;
  way.row_of_slot = sent[0];
  way.slot_of_row = sent[1];
  const ShuffleParts parts(shape);
  for (int64_t worker = 0; worker < shape.workers; ++worker) {
    way.send.push_back(parts.tokens(shape.own(), shape.groups_of(worker)));
    way.receive.push_back(parts.tokens(shape.groups_of(worker), shape.own()));
  }
  if (arrived) {
    way.arrival_of_place = (*arrived)[0];
    way.place_of_arrival = (*arrived)[1];
  }
  return {.way = way};
}

std::vector<Shuffle> shuffles_of(const TrainingRoute& route, const std::vector<int64_t>& layers,
                                 const ShuffleShape& shape, const step::InputOf& input) {
  const at::NoGradGuard no_grad;
  const Tensor keys = keys_of(route, layers, shape, input);
  const Tensor sent =
      at::empty({std::ssize(layers), 2, shape.local() * shape.tokens_of_group}, keys.options());
  OptionalTensor arrived;  // a single group's tokens come as they stand in it
  if (shape.workers > 1 && shape.local() > 1) arrived = at::empty_like(sent);
  static const auto op =
      kernels::find_op<void(const Tensor&, int64_t, int64_t, const Tensor&, const OptionalTensor&)>(
          "ballast::draw_shuffle");
  op.call(keys, shape.rank, shape.workers, sent, arrived);
  std::vector<Shuffle> shuffles;
  for (int64_t i = 0; i < std::ssize(layers); ++i)
    shuffles.push_back(
        shuffle_by(sent[i], arrived ? OptionalTensor((*arrived)[i]) : OptionalTensor(), shape));
  return shuffles;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("draw_shuffle", draw_on_cpu); }

Shuffle shuffle_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                   const step::InputOf& input) {
  return shuffles_of(route, {layer}, shape, input).front();
}

const Shuffle& PassShuffles::of(const TrainingRoute& route, int64_t layer,
                                const ShuffleShape& shape, const step::InputOf& input) {
  if (drawn_.empty()) drawn_ = shuffles_of(route, layers_, shape, input);
  const auto index = std::ranges::find(layers_, layer) - layers_.begin();
  TORCH_CHECK(index < std::ssize(layers_), "PassShuffles: there is no layer ", layer);
  return drawn_[static_cast<size_t>(index)];
}

}  // namespace ballast::experts
