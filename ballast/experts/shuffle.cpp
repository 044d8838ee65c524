// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shuffle.h"

#include <ATen/ops/empty.h>

#include <numeric>
#include <vector>

#include "ballast/kernels/parallel_ranges.h"
#include "ballast/system/random.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// How the tokens of each origin group are cut into parts for the groups they go to.
class Parts {
 public:
  explicit Parts(const ShuffleShape& shape)
      : groups_(shape.groups),
        size_(shape.tokens_of_group / shape.groups),
        rest_(shape.tokens_of_group % shape.groups) {}

  // The `rest_` tokens that are left over go to groups which the origins take in turn, so that
  // each group gets `rest_` of them in all.
  int64_t size(int64_t from, int64_t to) const {
    const int64_t turn = (to - from * rest_ % groups_ + groups_) % groups_;
    return size_ + (turn < rest_ ? 1 : 0);
  }

 private:
  int64_t groups_, size_, rest_;
};

uint64_t key_of(const TrainingRoute& route, int64_t layer, int64_t group) {
  const uint64_t of_step = random_bits(route.seed, "shuffle", route.step, route.micro_step);
  return random_bits(of_step, "shuffle", static_cast<uint64_t>(layer),
                     static_cast<uint64_t>(group));
}

// Where this worker's tokens stand in what it sends: by group they go to, then by group of origin.
std::vector<int64_t> rows_of_slots(const TrainingRoute& route, int64_t layer,
                                   const ShuffleShape& shape, const Parts& parts) {
  const int64_t local = shape.groups / shape.workers, first = shape.rank * local;
  std::vector<int64_t> begin(static_cast<size_t>(local * shape.groups));  // [P from, G to]
  int64_t slot = 0;
  for (int64_t to = 0; to < shape.groups; ++to) {
    for (int64_t from = 0; from < local; ++from) {
      begin[static_cast<size_t>(from * shape.groups + to)] = slot;
      slot += parts.size(first + from, to);
    }
  }
  std::vector<int64_t> row_of_slot(static_cast<size_t>(slot));
  kernels::parallel_ranges(local * shape.groups, 1, [&](int64_t some, int64_t end) {
    for (; some < end; ++some) {
      const int64_t from = some / shape.groups, to = some % shape.groups;
      const IndexPermutation order(static_cast<uint64_t>(shape.tokens_of_group),
                                   key_of(route, layer, first + from));
      int64_t before = 0;  // tokens of this origin that go to earlier groups
      for (int64_t other = 0; other < to; ++other) before += parts.size(first + from, other);
      for (int64_t i = 0; i < parts.size(first + from, to); ++i) {
        row_of_slot[static_cast<size_t>(begin[static_cast<size_t>(some)] + i)] =
            from * shape.tokens_of_group +
            static_cast<int64_t>(order(static_cast<uint64_t>(before + i)));
      }
    }
  });
  return row_of_slot;
}

// Parts arrive by worker, then group, then group of origin; a group's tokens belong together.
std::vector<int64_t> arrivals_of_places(const ShuffleShape& shape, const Parts& parts) {
  const int64_t local = shape.groups / shape.workers, first = shape.rank * local;
  std::vector<int64_t> begin(static_cast<size_t>(local * shape.groups));  // [P to, G from]
  int64_t arrival = 0;
  for (int64_t worker = 0; worker < shape.workers; ++worker) {
    for (int64_t to = 0; to < local; ++to) {
      for (int64_t from = worker * local; from < (worker + 1) * local; ++from) {
        begin[static_cast<size_t>(to * shape.groups + from)] = arrival;
        arrival += parts.size(from, first + to);
      }
    }
  }
  std::vector<int64_t> arrival_of_place;
  for (int64_t to = 0; to < local; ++to) {
    for (int64_t from = 0; from < shape.groups; ++from) {
      for (int64_t i = 0; i < parts.size(from, first + to); ++i)
        arrival_of_place.push_back(begin[static_cast<size_t>(to * shape.groups + from)] + i);
    }
  }
  return arrival_of_place;
}

// [2, N]: a permutation and its inverse.
Tensor both_ways(const std::vector<int64_t>& order, at::Device device) {
  const auto size = static_cast<int64_t>(order.size());
  const Tensor both =
      at::empty({2, size}, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  auto* data = both.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < size; ++i) {
    data[i] = order[static_cast<size_t>(i)];
    data[size + data[i]] = i;
  }
  return both;
}

}  // namespace

Shuffle shuffle_of(const TrainingRoute& route, int64_t layer, const ShuffleShape& shape,
                   const step::InputOf& input) {
  const Parts parts(shape);
  const int64_t local = shape.groups / shape.workers;
  const Tensor sent = step::take_input(input, [=, device = input.device](uint64_t step) {
    TrainingRoute of_step = route;
    of_step.step = step;
    return both_ways(rows_of_slots(of_step, layer, shape, parts), device);
  });
  if (shape.workers == 1) return {.order = {sent.select(0, 0), sent.select(0, 1)}};
  RowExchange way;
  way.row_of_slot = sent.select(0, 0);
  way.slot_of_row = sent.select(0, 1);
  for (int64_t worker = 0; worker < shape.workers; ++worker) {
    int64_t send = 0, receive = 0;
    for (int64_t mine = shape.rank * local; mine < (shape.rank + 1) * local; ++mine) {
      for (int64_t other = worker * local; other < (worker + 1) * local; ++other) {
        send += parts.size(mine, other);
        receive += parts.size(other, mine);
      }
    }
    way.send.push_back(send);
    way.receive.push_back(receive);
  }
  if (local > 1) {
    const Tensor arrived = step::take_input(input, [=, device = input.device](uint64_t) {
      return both_ways(arrivals_of_places(shape, parts), device);
    });
    way.arrival_of_place = arrived.select(0, 0);
    way.place_of_arrival = arrived.select(0, 1);
  }
  return {.way = way};
}

}  // namespace ballast::experts
