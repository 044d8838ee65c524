// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace ballast::record {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as TFRecord files use it. For small texts.
uint32_t crc32c(std::string_view bytes);

}  // namespace ballast::record
