// SPDX-License-Identifier: Apache-2.0
#include "ballast/loading/whole_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
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

using parameters::FlatRange;
using parameters::HeldState;

// What worker `rank` of those that divide a range has of its chunks. Others' chunks are outside.
std::vector<FlatRange> parts_of(int64_t rank, const FlatRange& within, const HeldState& held) {
  std::vector<FlatRange> parts;
  for (const auto& [all, own] : held.chunks()) {
    if (all.end <= within.begin || within.end <= all.begin) continue;
    const int64_t begin = all.begin + rank * own.size();
    const FlatRange here{std::max(begin, within.begin), std::min(begin + own.size(), within.end)};
    if (here.size() > 0) parts.push_back(here);
  }
  return parts;
}

int64_t size_of(const std::vector<FlatRange>& parts) {
  int64_t size = 0;
  for (const FlatRange& part : parts) size += part.size();
  return size;
}

// A segment of state, on the host of worker `writer` of those that divide it; the others get
// nothing. Counted in rows of kUnit elements, padding included, since MPI counts to 2^31 only.
Tensor collected(const parameters::ParameterTable& table, const Tensor& flat,
                 const parameters::Segment& segment, int writer, comm::Communicator& sharers) {
  constexpr int64_t kUnit = HeldState::kUnit;
  const HeldState& held = table.held();
  const FlatRange padded{segment.offset,
                         segment.offset + (segment.size + kUnit - 1) / kUnit * kUnit};
  const std::vector<FlatRange> common = held.common(padded);
  if (size_of(common) == padded.size())  // all have it
    return sharers.rank() == writer ? table.view(flat, segment).cpu() : Tensor();
  comm::RowsOfWorker send(static_cast<size_t>(sharers.size()), 0), receive = send;
  const auto own = parts_of(sharers.rank(), padded, held);
  send[static_cast<size_t>(writer)] = size_of(own) / kUnit;
  std::vector<Tensor> sent = {at::empty({0}, flat.options().device(at::kCPU))};
  for (const FlatRange& part : own) sent.push_back(table.part(flat, part).cpu());
  std::vector<FlatRange> parts;  // of all, in the order of workers
  for (int64_t rank = 0; rank < sharers.size() && sharers.rank() == writer; ++rank) {
    const auto theirs = parts_of(rank, padded, held);
    receive[static_cast<size_t>(rank)] = size_of(theirs) / kUnit;
    parts.insert(parts.end(), theirs.begin(), theirs.end());
  }
  const Tensor all = at::empty({size_of(parts) / kUnit, kUnit}, sent.front().options());
  sharers.all_to_all_uneven(all, at::cat(sent).view({-1, kUnit}), send, receive, {"whole state"});
  if (sharers.rank() != writer) return {};
  const Tensor whole = at::empty({padded.size()}, all.options());
  const auto place = [&](const FlatRange& range) {
    return whole.narrow(0, range.begin - padded.begin, range.size());
  };
  for (const FlatRange& part : common) place(part).copy_(table.part(flat, part));
  int64_t done = 0;
  for (const FlatRange& part : parts) {
    place(part).copy_(all.view({-1}).narrow(0, done, part.size()));
    done += part.size();
  }
  return whole.narrow(0, 0, segment.size).view(segment.shape);
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
                           const SegmentChoice& choice, const comm::WorkerGrid& grid) {
  const at::NoGradGuard no_grad;
  const bool divided = !table.is_whole(flat);
  const comm::Communicator& writers = divided ? grid.everyone() : grid.shards();
  if (writers.size() == 1) {
    views_ = segment_views(table, flat, choice, kept_.emplace_back());
    return;
  }
  std::vector<int64_t> written(static_cast<size_t>(writers.size()), 0);  // elements, of each
  for (const parameters::Segment& segment : table.segments()) {
    if (!choice.has(segment)) continue;
    const auto least = std::ranges::min_element(written);
    const auto writer = static_cast<int>(least - written.begin());
    *least += elements_of(segment.slice ? segment.slice->full_shape : segment.shape);
    const int shard = writer % grid.num_shards(), replica = writer / grid.num_shards();
    Tensor values;
    if (divided) {
      values = segment.slice ? collected(table, flat, segment, replica, grid.replicas())
                             : collected(table, flat, segment, writer, grid.everyone());
      if (!values.defined()) continue;
    } else {
      if (!segment.slice && writer != writers.rank()) continue;
      values = table.view(flat, segment).cpu();
    }
    if (segment.slice) values = put_together(values, *segment.slice, shard, grid.shards());
    if (writer != writers.rank()) continue;
    kept_.push_back(values);
    views_.push_back(view_of(tensor_name(choice.prefix, segment.name), values));
  }
}

}  // namespace ballast::loading
