// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace ballast::exchange {

// A matrix [rows, columns] of elements of `size` bytes, row-major -> [columns, rows].
void transpose(std::span<const std::byte> from, size_t rows, size_t columns, size_t size,
               std::span<std::byte> to);

}  // namespace ballast::exchange
