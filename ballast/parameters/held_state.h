// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ballast::parameters {

// Elements [begin, end) of flat buffers.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  at::Tensor of(const at::Tensor& flat) const { return flat.narrow(0, begin, size()); }
};

// Elements whose state is divided among `workers`, of which this is number `rank`.
struct DividedRange {
  FlatRange range;
  int64_t rank = 0, workers = 1;
};

// Which elements of flat buffers a worker keeps state for, where workers divide some. What is kept
// lies one piece after another in buffers of state, in the order of the elements.
//
// A divided range is cut into chunks from its end: gradients are done from there on. Of each chunk
// worker r keeps the r-th part. All keep what is left at the beginning, fewer than kUnit elements
// for each worker, and what is in no divided range.
class HeldState {
 public:
  static constexpr int64_t kUnit = 64;  // elements: every part starts on a cache line

  struct Chunk {
    FlatRange all;  // parts of equal size
    FlatRange own;  // this worker's
  };

  HeldState() = default;  // of no elements
  // Of `elements`. A chunk has about `chunk` of them; none is longer but where a unit for each
  // worker is more. REQUIRES: ranges are in order, apart, and begin and end at units.
  HeldState(int64_t elements, const std::vector<DividedRange>& divided, int64_t chunk);

  bool is_whole() const { return chunks_.empty(); }             // nothing is divided
  const std::vector<Chunk>& chunks() const { return chunks_; }  // in order

  // What is kept of a range, in pieces.
  std::vector<FlatRange> within(const FlatRange& range) const;
  // What all keep of it: the rest is in chunks.
  std::vector<FlatRange> common(const FlatRange& range) const;
  // How many elements are kept of it.
  int64_t size(const FlatRange& range) const;
  // Where it begins in buffers of state; nothing: it is not kept in one piece.
  std::optional<int64_t> place(const FlatRange& range) const;

 private:
  struct Piece {
    FlatRange range;
    int64_t place = 0;
  };
  void keep(const FlatRange& range);

  std::vector<Chunk> chunks_;
  std::vector<Piece> pieces_;  // in order
};

}  // namespace ballast::parameters
