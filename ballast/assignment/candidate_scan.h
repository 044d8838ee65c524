// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ballast::assignment {

// How rows of scores are searched: profit = units of the score - price, in 32 bits.
// REQUIRES: |score * units_per_score| < 2^29, prices 0 ..= 2^30 + 1.
struct CandidateScan {
  const int32_t* prices = nullptr;  // [E]
  int64_t experts = 0;
  float units_per_score = 1;  // a power of two
  int64_t reach = 0;          // 0 ..= 2^31 - 1
};

struct ScannedRow {
  int32_t found = 0;  // experts whose profit is within reach of the row's best
  int32_t first = 0;  // the lowest of them
};

// Rows are scanned in blocks of up to this many, so that one row's waiting is another's work.
constexpr int64_t kScanBlock = 16;

// What a scan writes: each row, and the candidates of rows that have more than one, one after the
// other, ascending within a row, with how far each is below the row's best profit.
struct ScanOutput {
  ScannedRow* rows;
  int32_t *expert, *deficit;  // each has room for rows * E + 16 entries
};

// Scans `rows` rows that lie `stride` apart; returns how many candidates it wrote.
using ScanRows = int64_t (*)(const CandidateScan& scan, const float* scores, int64_t stride,
                             int64_t rows, const ScanOutput& to);

// The instruction sets this processor has, fastest first: "avx512", "avx2", "plain". All give the
// same results.
std::span<const std::string_view> scan_instruction_sets();
ScanRows scan_rows_with(std::string_view instruction_set);

}  // namespace ballast::assignment
