// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/dispatch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "ballast/comm/collectives.h"
#include "ballast/experts/expert_ranks.h"
#include "ballast/experts/spread_rows.h"
#include "ballast/kernels/upload.h"

namespace ballast::experts {

using at::Tensor;

namespace {

enum class Direction { kThere, kBack };

comm::RowsOfMachine rows_of_machine(const comm::MachineHops& hops, const RowExchange& way,
                                    Direction direction) {
  comm::RowsOfMachine rows = way.of_machine;
  if (way.is_even) {
    const size_t neighbours = hops.neighbours().size();
    rows = {std::vector(neighbours, way.send), std::vector(neighbours, way.receive)};
  }
  if (direction == Direction::kBack) std::swap(rows.send, rows.receive);
  return rows;
}

Tensor send(const Travel& travel, const Tensor& x, const RowExchange& way, Direction direction,
            comm::Label label, step::StepWatch* watch) {
  if (travel.workers.size() == 1) return x;
  const bool there = direction == Direction::kThere;
  return step::communicate(x, watch, [&](const Tensor& sent) {
    if (travel.hops != nullptr)
      return travel.hops->all_to_all(sent, rows_of_machine(*travel.hops, way, direction), label);
    return comm::all_to_all(travel.workers, sent, there ? way.send : way.receive,
                            there ? way.receive : way.send, label);
  });
}

// Nothing is sent, and no row stands twice: experts read tokens where they are.
bool stays(const comm::Communicator& workers, const RowExchange& way) {
  return workers.size() == 1 && way.slot_of_row.dim() == 1;
}

}  // namespace

Tensor in_slots(const Tensor& x, const RowExchange& way) {
  return way.slot_of_row.dim() == 1 ? permute_rows(x, way.row_of_slot, way.slot_of_row)
                                    : spread_rows(x, way.row_of_slot, way.slot_of_row);
}

Tensor to_tokens(const Tensor& back, const RowExchange& way) {
  if (way.slot_of_row.dim() > 1) return back;
  return permute_rows(back, way.slot_of_row, way.row_of_slot);
}

Tensor exchange(const Travel& travel, const Tensor& x, const RowExchange& way, comm::Label label,
                step::StepWatch* watch) {
  const Tensor rows = send(travel, in_slots(x, way), way, Direction::kThere, label, watch);
  if (!way.arrival_of_place.defined()) return rows;
  return permute_rows(rows, way.arrival_of_place, way.place_of_arrival);
}

Tensor exchange_back(const Travel& travel, const Tensor& y, const RowExchange& way,
                     comm::Label label, step::StepWatch* watch) {
  const Tensor arrived = way.arrival_of_place.defined()
                             ? permute_rows(y, way.place_of_arrival, way.arrival_of_place)
                             : y;
  const Tensor back = send(travel, arrived, way, Direction::kBack, label, watch);
  return permute_rows(back, way.slot_of_row, way.row_of_slot);
}

RoutedRows to_experts(const Travel& travel, const Tensor& tokens, const Dispatch& dispatch,
                      comm::Label label, step::StepWatch* watch) {
  const RowExchange& way = dispatch.way;
  if (stays(travel.workers, way))
    return {tokens, dispatch.rows_of_expert, way.row_of_slot, way.slot_of_row};
  return {send(travel, in_slots(tokens, way), way, Direction::kThere, label, watch),
          dispatch.rows_of_expert, way.arrival_of_place, way.place_of_arrival};
}

Tensor from_experts(const Travel& travel, const Tensor& rows, const Dispatch& dispatch,
                    comm::Label label, step::StepWatch* watch) {
  const RowExchange& way = dispatch.way;
  if (stays(travel.workers, way)) return rows;
  return to_tokens(send(travel, rows, way, Direction::kBack, label, watch), way);
}

namespace {

Tensor to_tensor(const std::vector<int64_t>& values, at::Device device) {
  Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, host.mutable_data_ptr<int64_t>());
  return kernels::upload(host, device);
}

// The row of each slot of [0, slots), where `slot` [N] or [N, K] says which each row stands in;
// negative: in none.
Tensor rows_of_slots(const Tensor& slot, int64_t slots) {
  const Tensor places = slot.dim() == 1 ? slot.unsqueeze(1) : slot;  // [N, K]
  const Tensor row = at::arange(slot.size(0), slot.options()).unsqueeze(1).expand_as(places);
  const Tensor place = slot.remainder(slots + 1);  // what is not sent stands behind the last
  return at::full({slots + 1}, -1, slot.options())
      .scatter_(0, place.reshape({-1}), row.reshape({-1}))
      .narrow(0, 0, slots);
}

// What blocks of equal size, numbered by expert, then group, make known beforehand.
void set_equal_sizes(const ExpertPlaces& places, int64_t rows_of_block, Dispatch& dispatch) {
  RowExchange& way = dispatch.way;
  const int64_t of_worker = places.local() * rows_of_block;  // rows this one sends to each
  way.send.assign(static_cast<size_t>(places.workers), of_worker);
  way.receive = way.send;
  way.is_even = true;
  dispatch.rows_of_expert = ExpertRows(
      std::vector<int64_t>(static_cast<size_t>(places.local()), places.workers * rows_of_block));
  if (places.workers > 1 && places.local() > 1) {  // rows arrive by worker: order them by expert
    const Tensor arrivals = at::arange(places.workers * of_worker, way.slot_of_row.options());
    const auto reordered = [&](int64_t outer, int64_t inner) {
      return arrivals.view({outer, inner, rows_of_block}).transpose(0, 1).reshape({-1});
    };
    way.arrival_of_place = reordered(places.workers, places.local());
    way.place_of_arrival = reordered(places.local(), places.workers);
  }
}

}  // namespace

Dispatch dispatch_blocks(const ExpertPlaces& places, const Tensor& slot_of_row,
                         const Tensor& row_of_slot) {
  Dispatch dispatch;
  dispatch.way.slot_of_row = slot_of_row;
  dispatch.way.row_of_slot = row_of_slot;
  set_equal_sizes(places, row_of_slot.size(0) / places.experts, dispatch);
  return dispatch;
}

namespace {

// Slots in the order of experts, then of choices.
struct SortedChoices {
  Tensor slot;   // [T] or [T, K]; negative: none
  Tensor loads;  // [E]
};

SortedChoices sort_by_expert(int64_t experts, const Tensor& expert) {
  const auto [rank, loads] = expert_ranks(expert.reshape({1, -1}), experts);
  const Tensor begin = (loads.cumsum(1) - loads)[0];
  const Tensor slot = (begin.index_select(0, expert.reshape({-1}).clamp_max(experts - 1)) + rank[0])
                          .view_as(expert)
                          .masked_fill_(expert >= experts, -1);
  return {expert.dim() == 1 ? slot : slot.t().contiguous(), loads[0]};
}

// Rows that arrive in blocks, of each worker one for each of `local` experts: by expert first.
std::vector<int64_t> by_expert(std::span<const int64_t> blocks, size_t local) {
  std::vector<int64_t> first(blocks.size()), arrival_of_place;
  std::exclusive_scan(blocks.begin(), blocks.end(), first.begin(), int64_t{0});
  for (size_t here = 0; here < local; ++here) {
    for (size_t block = here; block < blocks.size(); block += local)
      for (int64_t i = 0; i < blocks[block]; ++i) arrival_of_place.push_back(first[block] + i);
  }
  return arrival_of_place;
}

}  // namespace

Dispatch dispatch_uncounted(int64_t experts, const Tensor& expert) {
  const auto [slot, loads] = sort_by_expert(experts, expert);
  Dispatch dispatch;
  dispatch.way.slot_of_row = slot;
  dispatch.way.row_of_slot = rows_of_slots(slot, expert.numel());
  dispatch.way.send = dispatch.way.receive = {expert.numel()};
  const Tensor ends = loads.cumsum(0).to(at::kInt);
  ends.select(0, experts - 1).fill_(expert.numel());
  dispatch.rows_of_expert = ExpertRows(ends);
  return dispatch;
}

Dispatch dispatch_by_counts(comm::Communicator& workers, int64_t experts, const Tensor& expert,
                            comm::Label label) {
  const auto size = static_cast<size_t>(workers.size());
  const auto local = static_cast<size_t>(experts) / size;
  const auto [slot, loads] = sort_by_expert(experts, expert);
  const Tensor sent = loads.cpu();  // [E]
  Dispatch dispatch;
  RowExchange& way = dispatch.way;
  way.slot_of_row = slot;
  way.row_of_slot = rows_of_slots(slot, sent.sum().item<int64_t>());
  const Tensor arriving = at::empty_like(sent);  // [W, E/W]: of each worker, for each expert here
  workers.all_to_all(arriving, sent, label);
  const auto* to = sent.const_data_ptr<int64_t>();
  const auto* from = arriving.const_data_ptr<int64_t>();
  for (size_t worker = 0; worker < size; ++worker) {
    way.send.push_back(std::accumulate(to + worker * local, to + (worker + 1) * local, int64_t{0}));
    way.receive.push_back(
        std::accumulate(from + worker * local, from + (worker + 1) * local, int64_t{0}));
  }
  std::vector<int64_t> rows_of_expert(local);
  for (size_t block = 0; block < size * local; ++block)
    rows_of_expert[block % local] += from[block];
  dispatch.rows_of_expert = ExpertRows(rows_of_expert);
  if (size > 1 && local > 1) {
    way.arrival_of_place = to_tensor(by_expert({from, size * local}, local), expert.device());
    way.place_of_arrival = rows_of_slots(way.arrival_of_place, way.arrival_of_place.size(0));
  }
  return dispatch;
}

Dispatch dispatch_unlimited(comm::Communicator& workers, int64_t experts, const Tensor& expert,
                            at::ScalarType type, comm::Label label) {
  if (workers.size() == 1 && !expert.is_cpu() && type == at::kBFloat16)
    return dispatch_uncounted(experts, expert);
  return dispatch_by_counts(workers, experts, expert, label);
}

}  // namespace ballast::experts
