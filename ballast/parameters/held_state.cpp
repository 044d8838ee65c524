// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/held_state.h"

#include <algorithm>

namespace ballast::parameters {
namespace {

FlatRange both(const FlatRange& a, const FlatRange& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

}  // namespace

void HeldState::keep(const FlatRange& range) {
  if (range.size() <= 0) return;
  const int64_t place = pieces_.empty() ? 0 : pieces_.back().place + pieces_.back().range.size();
  pieces_.push_back({range, place});
}

HeldState::HeldState(int64_t elements, const std::vector<DividedRange>& divided, int64_t chunk) {
  int64_t done = 0;
  for (const auto& [range, rank, workers] : divided) {
    const int64_t unit = kUnit * workers;  // of a chunk
    const int64_t count = workers > 1 ? range.size() / unit : 0;
    if (count == 0) continue;
    const int64_t of_chunk = std::max<int64_t>(1, chunk / unit);
    keep({done, range.end - count * unit});
    for (int64_t left = count; left > 0;) {
      const int64_t units = (left - 1) % of_chunk + 1;  // all but the first are full
      const int64_t begin = range.end - left * unit, part = units * kUnit;
      const int64_t own = begin + rank * part;
      chunks_.push_back({{begin, begin + units * unit}, {own, own + part}});
      keep(chunks_.back().own);
      left -= units;
    }
    done = range.end;
  }
  keep({done, elements});
}

std::vector<FlatRange> HeldState::within(const FlatRange& range) const {
  std::vector<FlatRange> kept;
  for (const Piece& piece : pieces_) {
    const FlatRange here = both(piece.range, range);
    if (here.size() > 0) kept.push_back(here);
  }
  return kept;
}

std::vector<FlatRange> HeldState::common(const FlatRange& range) const {
  std::vector<FlatRange> kept;
  FlatRange rest = range;
  for (const Chunk& chunk : chunks_) {
    if (both(chunk.all, range).size() <= 0) continue;
    if (chunk.all.begin > rest.begin) kept.push_back({rest.begin, chunk.all.begin});
    rest.begin = chunk.all.end;
  }
  if (rest.size() > 0) kept.push_back(rest);
  return kept;
}

int64_t HeldState::size(const FlatRange& range) const {
  int64_t count = 0;
  for (const FlatRange& kept : within(range)) count += kept.size();
  return count;
}

std::optional<int64_t> HeldState::place(const FlatRange& range) const {
  const auto after = std::ranges::upper_bound(pieces_, range.begin, {},
                                              [](const Piece& piece) { return piece.range.begin; });
  if (after == pieces_.begin()) return std::nullopt;
  const Piece& piece = *std::prev(after);
  if (range.end > piece.range.end) return std::nullopt;
  return piece.place + range.begin - piece.range.begin;
}

}  // namespace ballast::parameters
