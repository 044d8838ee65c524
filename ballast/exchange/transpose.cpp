// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/transpose.h"

#include <algorithm>
#include <cstring>

namespace ballast::exchange {

void transpose(std::span<const std::byte> from, size_t rows, size_t columns, size_t size,
               std::span<std::byte> to) {
  constexpr size_t kTile = 32;  // so that both sides stay in the cache
  for (size_t top = 0; top < rows; top += kTile) {
    for (size_t left = 0; left < columns; left += kTile) {
      for (size_t i = top; i < std::min(top + kTile, rows); ++i) {
        for (size_t j = left; j < std::min(left + kTile, columns); ++j)
          std::memcpy(&to[(j * rows + i) * size], &from[(i * columns + j) * size], size);
      }
    }
  }
}

}  // namespace ballast::exchange
