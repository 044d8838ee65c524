// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/muon.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>

#include "ballast/kernels/newton_schulz.h"

namespace ballast::training {

using at::Tensor;
using parameters::ParameterTable;
using parameters::Segment;

namespace {

// Bounds what the iteration needs beside the weights: a few times as many numbers.
constexpr int64_t kElementsAtATime = int64_t{1} << 26;

// An orthogonal matrix has entries of about 1 / sqrt(max(R, C)). Adam's updates are near 0.2.
double size_of_direction(int64_t rows, int64_t columns) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
}

// What matrices of a batch have in common. Owners are kept apart, so that matrices that all workers
// have are in the same batches everywhere.
using Kind = std::tuple<parameters::Owner, int64_t, int64_t, std::optional<int64_t>, double>;

// Rows of its matrices here, from top to bottom.
std::vector<int64_t> rows_of(const Segment& segment) {
  if (segment.matrices.empty()) return {segment.shape[0]};
  std::vector<int64_t> rows = segment.matrices;
  if (segment.slice && segment.slice->dim == 0)
    for (int64_t& height : rows) height /= segment.slice->shards;
  return rows;
}

// Where the matrices of each kind begin.
std::map<Kind, std::vector<int64_t>> matrices_of(const ParameterTable& table) {
  std::map<Kind, std::vector<int64_t>> found;
  for (const Segment& segment : table.segments()) {
    if (segment.update != parameters::Update::kMuon) continue;
    const int64_t columns = segment.shape[1];
    const auto divided = segment.slice ? std::optional(segment.slice->dim) : std::nullopt;
    int64_t offset = segment.offset;
    for (const int64_t rows : rows_of(segment)) {
      found[{segment.owner, rows, columns, divided, segment.rate}].push_back(offset);
      offset += rows * columns;
    }
    if (offset != segment.offset + segment.size)
      throw std::logic_error("matrices of unequal parts, or that do not fill " + segment.name);
  }
  return found;
}

}  // namespace

Muon::Muon(const ParameterTable& table, const config::OptimizerConfig& config,
           comm::Communicator* shards)
    : shards_(shards) {
  add_batches(table, config);
}

void Muon::add_batches(const ParameterTable& table, const config::OptimizerConfig& config) {
  // State may lie elsewhere than the weights it belongs to: all buffers begin where Muon's do.
  const ParameterTable::Range matrices =
      table.range(parameters::Owner::kShard, parameters::Owner::kExpert, parameters::Update::kMuon);
  const auto part = [&](const Tensor& flat) { return table.part(flat, matrices); };
  for (const auto& [kind, offsets] : matrices_of(table)) {
    const auto& [owner, rows, columns, divided, rate] = kind;
    if (divided && shards_ == nullptr)
      throw std::logic_error("Muon: matrices are divided, but among nobody");
    const int64_t shards = divided ? shards_->size() : 1;
    const int64_t whole_rows = divided == 0 ? rows * shards : rows,
                  whole_columns = divided == 1 ? columns * shards : columns;
    const int64_t at_a_time = std::max<int64_t>(1, kElementsAtATime / (whole_rows * whole_columns));
    for (size_t first = 0; first < offsets.size(); first += static_cast<size_t>(at_a_time)) {
      const size_t count = std::min(offsets.size() - first, static_cast<size_t>(at_a_time));
      batches_.push_back(
          {.buffers = {.working = part(table.working()),
                       .master = part(table.master()),
                       .gradient = part(table.gradient()),
                       .momentum = part(table.first_moment()),
                       .offsets = at::tensor(at::ArrayRef(offsets.data() + first, count), at::kLong)
                                      .sub_(matrices.begin)
                                      .to(table.master().device())},
           .shape = {rows, columns},
           .divided = divided,
           .constants = {.momentum = config.momentum,
                         .weight_decay = config.weight_decay,
                         .rate = rate * config.matrix_rate,
                         .size = size_of_direction(whole_rows, whole_columns)}});
    }
  }
}

// [N, r, c] of each shard -> [N, R, C]
Tensor Muon::gathered(const Tensor& parts, int64_t dim) const {
  std::vector<int64_t> shape = parts.sizes().vec();
  shape.insert(shape.begin(), shards_->size());
  const Tensor all = at::empty(shape, parts.options());  // [M, N, r, c]
  shards_->all_gather(all, parts, {"momentum"});
  return all.movedim(0, dim + 1).flatten(dim + 1, dim + 2).contiguous();
}

Tensor Muon::own_part(const Tensor& whole, const Batch& batch) const {
  const int64_t dim = *batch.divided, size = batch.shape[static_cast<size_t>(dim)];
  return whole.narrow(dim + 1, shards_->rank() * size, size).contiguous();
}

void Muon::update(const Tensor& numbers, const Tensor& scale) const {
  for (const Batch& batch : batches_) {
    const Tensor momentum =
        kernels::muon_momentum_(batch.buffers, batch.shape, batch.constants, scale);
    const Tensor directions =
        batch.divided ? own_part(kernels::orthogonalised(gathered(momentum, *batch.divided)), batch)
                      : kernels::orthogonalised(momentum);
    kernels::muon_move_(batch.buffers, directions, batch.constants, numbers, scale);
  }
}

}  // namespace ballast::training
