// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace ballast::scores {

// Fills `out` with standard normal numbers of about 1e-6 precision: a pure function of `key`, the
// same on every processor, and many times faster than RandomStream::normal().
void fill_normal(uint64_t key, std::span<float> out);

}  // namespace ballast::scores
