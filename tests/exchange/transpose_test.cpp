// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/transpose.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace ballast::exchange {
namespace {

template <typename Number>
void expect_transposed(size_t rows, size_t columns) {
  std::vector<Number> from(rows * columns), to(rows * columns);
  std::iota(from.begin(), from.end(), Number{1});
  transpose(std::as_bytes(std::span(from)), rows, columns, sizeof(Number),
            std::as_writable_bytes(std::span(to)));
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) ASSERT_EQ(to[j * rows + i], from[i * columns + j]);
  }
}

TEST(Transpose, RowsBecomeColumnsWhateverTheirNumberAndSize) {
  for (const auto& [rows, columns] :
       {std::pair<size_t, size_t>(1, 1), {3, 70}, {65, 32}, {33, 1}}) {
    expect_transposed<uint16_t>(rows, columns);
    expect_transposed<uint32_t>(rows, columns);
  }
}

}  // namespace
}  // namespace ballast::exchange
