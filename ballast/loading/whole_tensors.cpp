// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/whole_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace ballast::loading {
namespace {

using at::Tensor;

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

parameters::Slice of_shard(parameters::Slice slice, int64_t shard) {
  slice.shard = shard;
  return slice;
}

// Worker `writer` gets the whole tensor of which all have their parts; the others nothing.
Tensor put_together(const Tensor& part, const parameters::Slice& slice, int writer,
                    comm::Communicator& shards) {
  const auto [row, send, receive] = WholeTensors::way_to(writer, shards, slice);
  const int64_t rows = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  const Tensor parts = at::empty({rows, row}, part.options());
  shards.all_to_all_uneven(parts, part.reshape({-1, row}), send, receive, {"whole tensors"});
  if (shards.rank() != writer) return {};
  const Tensor whole = at::empty(slice.full_shape, part.options());
  int64_t first = 0;
  for (int64_t shard = 0; shard < shards.size(); ++shard) {
    const int64_t count = receive[static_cast<size_t>(shard)];
    const parameters::Slice there = of_shard(slice, shard);
    there.put(parts.narrow(0, first, count).reshape(there.shape()), whole);
    first += count;
  }
  return whole;
}

}  // namespace

WholeTensors::Way WholeTensors::way_to(int writer, const comm::Communicator& shards,
                                       const parameters::Slice& slice) {
  const comm::RowsOfWorker none(static_cast<size_t>(shards.size()), 0);
  Way way{.row = 0, .send = none, .receive = none};
  for (int64_t shard = 0; shard < shards.size(); ++shard)
    way.row = std::gcd(way.row, elements_of(of_shard(slice, shard).shape()));
  way.send[static_cast<size_t>(writer)] = elements_of(slice.shape()) / way.row;
  if (shards.rank() != writer) return way;
  for (int64_t shard = 0; shard < shards.size(); ++shard)
    way.receive[static_cast<size_t>(shard)] = elements_of(of_shard(slice, shard).shape()) / way.row;
  return way;
}

WholeTensors::WholeTensors(const parameters::ParameterTable& table, const Tensor& flat,
                           const SegmentChoice& choice, comm::Communicator& shards) {
  const at::NoGradGuard no_grad;
  if (shards.size() == 1) {
    views_ = segment_views(table, flat, choice, kept_.emplace_back());
    return;
  }
  std::vector<int64_t> written(static_cast<size_t>(shards.size()), 0);  // elements, of each shard
  for (const parameters::Segment& segment : table.segments()) {
    if (!choice.has(segment)) continue;
    const auto least = std::ranges::min_element(written);
    const auto writer = static_cast<int>(least - written.begin());
    *least += elements_of(segment.slice ? segment.slice->full_shape : segment.shape);
    if (!segment.slice && writer != shards.rank()) continue;
    Tensor values = table.view(flat, segment).cpu();
    if (segment.slice) values = put_together(values, *segment.slice, writer, shards);
    if (writer != shards.rank()) continue;
    kept_.push_back(values);
    views_.push_back(view_of(tensor_name(choice.prefix, segment.name), values));
  }
}

}  // namespace ballast::loading
