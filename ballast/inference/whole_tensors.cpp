// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/whole_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "ballast/inference/weights.h"

namespace ballast {
namespace {

using at::Tensor;

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

// Worker `writer` gets the whole tensor of which all have their parts; the others nothing.
Tensor put_together(const Tensor& part, const Slice& slice, int writer, Communicator& shards) {
  RowsOfWorker send(static_cast<size_t>(shards.size()), 0), receive = send;
  send.at(static_cast<size_t>(writer)) = part.numel();
  const bool writes = shards.rank() == writer;
  std::vector<Slice> slices;
  for (int64_t shard = 0; shard < shards.size(); ++shard) {
    slices.push_back(slice);
    slices.back().shard = shard;
    if (writes) receive.at(static_cast<size_t>(shard)) = elements_of(slices.back().shape());
  }
  const Tensor parts = at::empty({writes ? elements_of(slice.full_shape) : 0}, part.options());
  shards.all_to_all_uneven(parts, part.reshape({-1}), send, receive, {"whole tensors"});
  if (!writes) return {};
  const Tensor whole = at::empty(slice.full_shape, part.options());
  int64_t first = 0;
  for (const Slice& other : slices) {
    const int64_t size = elements_of(other.shape());
    other.put(parts.narrow(0, first, size), whole);
    first += size;
  }
  return whole;
}

}  // namespace

WholeTensors::WholeTensors(const ParameterTable& table, const Tensor& flat,
                           const std::string& prefix, Communicator& shards) {
  const at::NoGradGuard no_grad;
  if (shards.size() == 1) {
    views_ =
        segment_views(table, flat, {prefix, Owner::kShard, Owner::kRouter}, kept_.emplace_back());
    return;
  }
  std::vector<int64_t> written(static_cast<size_t>(shards.size()), 0);  // elements, of each shard
  for (const Segment& segment : table.segments()) {
    if (segment.owner == Owner::kExpert) continue;
    const auto least = std::ranges::min_element(written);
    const auto writer = static_cast<int>(least - written.begin());
    *least += elements_of(segment.slice ? segment.slice->full_shape : segment.shape);
    if (!segment.slice && writer != shards.rank()) continue;
    Tensor values = table.view(flat, segment).cpu();
    if (segment.slice) values = put_together(values, *segment.slice, writer, shards);
    if (writer != shards.rank()) continue;
    kept_.push_back(values);
    views_.push_back(view_of(tensor_name(prefix, segment.name), values));
  }
}

}  // namespace ballast
