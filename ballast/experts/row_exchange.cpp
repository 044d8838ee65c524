// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/row_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <numeric>

#include "ballast/comm/collectives.h"
#include "ballast/kernels/permute_rows.h"

namespace ballast {

using at::Tensor;

Tensor exchange(Communicator& workers, const Tensor& x, const RowExchange& way, Label label) {
  Tensor rows = permute_rows(x, way.row_of_slot, way.slot_of_row);
  if (workers.size() > 1) rows = all_to_all(workers, rows, way.send, way.receive, label);
  if (!way.arrival_of_place.defined()) return rows;
  return permute_rows(rows, way.arrival_of_place, way.place_of_arrival);
}

Tensor exchange_back(Communicator& workers, const Tensor& y, const RowExchange& way, Label label) {
  Tensor rows = y;
  if (way.arrival_of_place.defined())
    rows = permute_rows(rows, way.place_of_arrival, way.arrival_of_place);
  if (workers.size() > 1) rows = all_to_all(workers, rows, way.receive, way.send, label);
  return permute_rows(rows, way.slot_of_row, way.row_of_slot);
}

namespace {

Tensor inverse_of(const Tensor& permutation) {
  return at::empty_like(permutation)
      .scatter_(0, permutation, at::arange(permutation.size(0), permutation.options()));
}

Tensor to_tensor(const std::vector<int64_t>& values, at::Device device) {
  Tensor host = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::ranges::copy(values, host.mutable_data_ptr<int64_t>());
  return host.to(device);
}

}  // namespace

Dispatch dispatch_balanced(const ExpertPlaces& places, const Tensor& expert_of_token,
                           const Tensor& place_of_token, const Tensor& loads) {
  const int64_t groups = expert_of_token.size(0), tokens = expert_of_token.size(1);
  const int64_t block = (tokens + places.experts - 1) / places.experts;
  const int64_t of_worker = places.local() * groups * block;  // rows this one sends to each
  const Tensor expert = expert_of_token.to(at::kLong);        // [P, T/G]
  const auto longs = expert.options();
  const Tensor first = loads.cumsum(1, at::kLong) - loads;  // [P, E] place of an expert's first
  const Tensor group = at::arange(groups, longs).unsqueeze(1);
  // Slots are numbered by expert, then group, then the token's place in its block.
  const Tensor slot = (expert * groups + group) * block + place_of_token - first.gather(1, expert);
  Dispatch dispatch;
  RowExchange& way = dispatch.way;
  way.slot_of_row = slot.reshape({-1});
  way.row_of_slot = at::full({places.workers * of_worker}, -1, longs)
                        .scatter_(0, way.slot_of_row, at::arange(groups * tokens, longs));
  way.send.assign(static_cast<size_t>(places.workers), of_worker);
  way.receive = way.send;
  dispatch.rows_of_expert.assign(static_cast<size_t>(places.local()),
                                 places.workers * groups * block);
  if (places.workers > 1 && places.local() > 1) {  // rows arrive by worker: order them by expert
    const Tensor arrivals = at::arange(places.workers * of_worker, longs);
    const auto reordered = [&](int64_t outer, int64_t inner) {
      return arrivals.view({outer, inner, groups * block}).transpose(0, 1).reshape({-1});
    };
    way.arrival_of_place = reordered(places.workers, places.local());
    way.place_of_arrival = reordered(places.local(), places.workers);
  }
  return dispatch;
}

Dispatch dispatch_by_counts(Communicator& workers, int64_t experts, const Tensor& expert_of_token,
                            Label label) {
  const auto size = static_cast<size_t>(workers.size());
  const auto local = static_cast<size_t>(experts) / size;
  Dispatch dispatch;
  RowExchange& way = dispatch.way;
  way.row_of_slot = at::argsort(expert_of_token, /*stable=*/true, /*dim=*/0);
  way.slot_of_row = inverse_of(way.row_of_slot);
  const Tensor sent = at::bincount(expert_of_token, {}, experts).cpu();  // [E]
  const Tensor arriving = at::empty_like(sent);  // [W, E/W]: of each worker, for each expert here
  workers.all_to_all(arriving, sent, label);
  const auto* to = sent.const_data_ptr<int64_t>();
  const auto* from = arriving.const_data_ptr<int64_t>();
  for (size_t worker = 0; worker < size; ++worker) {
    way.send.push_back(std::accumulate(to + worker * local, to + (worker + 1) * local, int64_t{0}));
    way.receive.push_back(
        std::accumulate(from + worker * local, from + (worker + 1) * local, int64_t{0}));
  }
  // Where each block of (worker, expert) begins among the arrivals; then read by expert first.
  std::vector<int64_t> begin(size * local);
  std::exclusive_scan(from, from + size * local, begin.begin(), int64_t{0});
  std::vector<int64_t> arrival_of_place;
  for (size_t expert = 0; expert < local; ++expert) {
    const size_t before = arrival_of_place.size();
    for (size_t worker = 0; worker < size; ++worker) {
      const size_t block = worker * local + expert;
      for (int64_t i = 0; i < from[block]; ++i) arrival_of_place.push_back(begin[block] + i);
    }
    dispatch.rows_of_expert.push_back(static_cast<int64_t>(arrival_of_place.size() - before));
  }
  if (size > 1 && local > 1) {
    way.arrival_of_place = to_tensor(arrival_of_place, expert_of_token.device());
    way.place_of_arrival = inverse_of(way.arrival_of_place);
  }
  return dispatch;
}

}  // namespace ballast
