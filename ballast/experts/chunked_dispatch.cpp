// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/chunked_dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "ballast/comm/collectives.h"

namespace ballast::experts {

using at::Tensor;

namespace {

// Slots [E, R] by chunk: of every expert the rows from begin on.
Tensor part_of_blocks(const Tensor& slots, int64_t begin, int64_t end) {
  return slots.narrow(1, begin, end - begin).reshape({-1});
}

}  // namespace

ChunkedDispatch in_chunks(const ExpertPlaces& places, const Dispatch& dispatch, int64_t chunks) {
  const RowExchange& way = dispatch.way;
  TORCH_CHECK(way.is_even && places.workers > 1, "in_chunks: want equal blocks, several workers");
  const Tensor& row_of_slot = way.row_of_slot;                               // [M]
  const int64_t slots = row_of_slot.size(0), rows = slots / places.experts;  // R of a block
  TORCH_CHECK(rows > 0, "in_chunks: blocks have no rows");
  const int64_t count = std::min(chunks, rows);
  const Tensor slot = at::arange(slots, row_of_slot.options()).view({places.experts, rows});
  ChunkedDispatch result{.whole = dispatch, .chunks = {}};
  std::vector<Tensor> order;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = rows * i / count, end = rows * (i + 1) / count;
    order.push_back(part_of_blocks(slot, begin, end));
    const Dispatch sizes = dispatch_blocks(places, way.slot_of_row, order.back());
    result.chunks.push_back({.rows = order.back().size(0),
                             .rows_of_expert = sizes.rows_of_expert,
                             .arrival_of_place = sizes.way.arrival_of_place,
                             .place_of_arrival = sizes.way.place_of_arrival});
  }
  const Tensor old_slot = at::cat(order);  // [M], of each new one
  const Tensor new_slot =
      at::empty_like(old_slot).scatter_(0, old_slot, at::arange(slots, old_slot.options()));
  RowExchange& reordered = result.whole.way;
  reordered.row_of_slot = row_of_slot.index_select(0, old_slot);
  const Tensor found = new_slot.index_select(0, way.slot_of_row.clamp_min(0).reshape({-1}));
  reordered.slot_of_row =
      at::where(way.slot_of_row < 0, way.slot_of_row, found.view_as(way.slot_of_row));
  reordered.arrival_of_place = reordered.place_of_arrival = Tensor();
  return result;
}

namespace {

// A chunk's way there or back. Time spent in begin() and finish() counts as communication.
class Trip {
 public:
  Trip(comm::Communicator& workers, comm::Label label, step::StepWatch* watch)
      : rows_(workers, label), watch_(watch) {}

  void begin(const Tensor& x) {
    arriving_ = step::communicate(x, watch_, [&](const Tensor& sent) { return rows_.begin(sent); });
  }
  Tensor finish() {
    return step::communicate(std::exchange(arriving_, {}), watch_,
                             [&](const Tensor& arriving) { return rows_.finish(arriving); });
  }

 private:
  comm::RowsUnderWay rows_;
  step::StepWatch* watch_;
  Tensor arriving_;
};

}  // namespace

Tensor through_experts(comm::Communicator& workers, const Tensor& tokens,
                       const ChunkedDispatch& dispatch, const ComputeChunk& compute,
                       comm::Label there, comm::Label back, step::StepWatch* watch) {
  const RowExchange& way = dispatch.whole.way;
  std::vector<int64_t> rows;
  std::vector<Trip> out, home;
  for (const ChunkedDispatch::Chunk& chunk : dispatch.chunks) {
    rows.push_back(chunk.rows);
    out.emplace_back(workers, there, watch);
    home.emplace_back(workers, back, watch);
  }
  const std::vector<Tensor> sent = at::split_with_sizes(in_slots(tokens, way), rows);
  const size_t count = sent.size();
  std::vector<Tensor> arrived;
  out[0].begin(sent[0]);
  // Backward comes to the last call first, and does the same from the end to the start. Of each
  // direction one chunk is under way at a time: of two, both would arrive late.
  for (size_t i = 0; i < count; ++i) {
    const ChunkedDispatch::Chunk& chunk = dispatch.chunks[i];
    const Tensor here = out[i].finish();
    if (i + 1 < count) out[i + 1].begin(sent[i + 1]);
    const Tensor computed =
        compute({here, chunk.rows_of_expert, chunk.arrival_of_place, chunk.place_of_arrival},
                /*is_last=*/i + 1 == count);
    if (i > 0) arrived.push_back(home[i - 1].finish());
    home[i].begin(computed);
  }
  arrived.push_back(home[count - 1].finish());
  return to_tokens(at::cat(arrived), way);
}

}  // namespace ballast::experts
