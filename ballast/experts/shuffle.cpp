// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shuffle.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/parallel_ranges.h"
#include "ballast/system/index_permutation.h"
#include "ballast/system/random.h"

namespace ballast::experts {

// keys [P] int64, of the groups of worker `rank`. Writes [2, T] int64 each, an order and its
// inverse: the row of each slot that is sent, and the arrival of each place where that is wanted.
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
  const int64_t local = keys.size(0), size = sent.size(1);
  const ShuffleShape shape{local * workers, size / local, rank, workers};
  const ShuffleParts parts(shape);
  const auto* key = keys.const_data_ptr<int64_t>();
  auto* const slots = sent.mutable_data_ptr<int64_t>();
  auto* const places = arrived ? arrived->mutable_data_ptr<int64_t>() : nullptr;
  kernels::parallel_ranges(local * shape.groups, 1, [&](int64_t index, int64_t end) {
    for (; index < end; ++index) {
      const int64_t group = index / shape.groups, other = index % shape.groups;
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

// [P] int64, of this worker's groups.
Tensor keys_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
               const step::InputOf& input) {
  return step::take_input(input, [=](uint64_t step) {
    const Tensor keys = at::empty({shape.local()}, at::TensorOptions().dtype(at::kLong));
    TrainingRoute of_step = route;
    of_step.step = step;
    for (int64_t i = 0; i < shape.local(); ++i) {
      keys.mutable_data_ptr<int64_t>()[i] =
          static_cast<int64_t>(key_of(of_step, layer, shape.own().begin + i));
    }
    return keys;
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("draw_shuffle", draw_on_cpu); }

Shuffle shuffle_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                   const step::InputOf& input) {
  const at::NoGradGuard no_grad;
  const Tensor keys = keys_of(route, layer, shape, input);
  const Tensor sent = at::empty({2, shape.local() * shape.tokens_of_group}, keys.options());
  OptionalTensor arrived;  // a single group's tokens come as they stand in it
  if (shape.workers > 1 && shape.local() > 1) arrived = at::empty_like(sent);
  static const auto op =
      kernels::find_op<void(const Tensor&, int64_t, int64_t, const Tensor&, const OptionalTensor&)>(
          "ballast::draw_shuffle");
  op.call(keys, shape.rank, shape.workers, sent, arrived);
  if (shape.workers == 1) return {.order = {sent.select(0, 0), sent.select(0, 1)}};

  RowExchange way;
  way.row_of_slot = sent.select(0, 0);
  way.slot_of_row = sent.select(0, 1);
  const ShuffleParts parts(shape);
  for (int64_t worker = 0; worker < shape.workers; ++worker) {
    way.send.push_back(parts.tokens(shape.own(), shape.groups_of(worker)));
    way.receive.push_back(parts.tokens(shape.groups_of(worker), shape.own()));
  }
  if (arrived) {
    way.arrival_of_place = arrived->select(0, 0);
    way.place_of_arrival = arrived->select(0, 1);
  }
  return {.way = way};
}

}  // namespace ballast::experts
