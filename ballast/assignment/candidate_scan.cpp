// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/candidate_scan.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

namespace ballast::assignment {
namespace {

constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();

int32_t threshold(int32_t best, int64_t reach) {
  return static_cast<int32_t>(std::max<int64_t>(int64_t{best} - reach, kLowest + 1));
}

int32_t profit(const CandidateScan& scan, const float* row, int64_t e) {
  return static_cast<int32_t>(row[e] * scan.units_per_score) - scan.prices[e];
}

// Keeps the candidates of a row, written at `kept`, if there are several. Returns where the next
// row's go.
inline int64_t keep_several(const int32_t* expert, int32_t found, int64_t kept, ScannedRow& row) {
  row = {.found = found, .first = expert[kept]};
  return kept + (found > 1 ? found : 0);
}

int64_t scan_plain(const CandidateScan& scan, const float* scores, int64_t stride, int64_t rows,
                   const ScanOutput& to) {
  const auto [scanned, expert, deficit] = to;
  int64_t kept = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * stride;
    int32_t best = kLowest;
    for (int64_t e = 0; e < scan.experts; ++e) best = std::max(best, profit(scan, row, e));
    const int32_t least = threshold(best, scan.reach);
    int32_t found = 0;
    for (int64_t e = 0; e < scan.experts; ++e) {
      const int32_t value = profit(scan, row, e);
      if (value < least) continue;
      expert[kept + found] = static_cast<int32_t>(e);
      deficit[kept + found++] = best - value;
    }
    kept = keep_several(expert, found, kept, scanned[r]);
  }
  return kept;
}

#define BALLAST_AVX2 __attribute__((target("avx2,bmi,popcnt")))

BALLAST_AVX2 inline __m256i profits_avx2(const CandidateScan& scan, const float* row, int64_t e) {
  const __m256 scaled =
      _mm256_mul_ps(_mm256_loadu_ps(row + e), _mm256_set1_ps(scan.units_per_score));
  const auto* prices = reinterpret_cast<const __m256i*>(scan.prices + e);
  return _mm256_sub_epi32(_mm256_cvttps_epi32(scaled), _mm256_loadu_si256(prices));
}

BALLAST_AVX2 inline int32_t largest_avx2(__m256i lanes) {
  __m128i most = _mm_max_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(1, 0, 3, 2)));
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(most);
}

BALLAST_AVX2 inline int32_t best_avx2(const CandidateScan& scan, const float* row) {
  const int64_t whole = scan.experts / 8 * 8;
  __m256i most = _mm256_set1_epi32(kLowest);
  for (int64_t e = 0; e < whole; e += 8) most = _mm256_max_epi32(most, profits_avx2(scan, row, e));
  int32_t best = largest_avx2(most);
  for (int64_t e = whole; e < scan.experts; ++e) best = std::max(best, profit(scan, row, e));
  return best;
}

// For each set of lanes, their numbers one after the other: what AVX-512 has an instruction for.
constexpr auto kLanesOf = [] {
  std::array<std::array<uint8_t, 8>, 256> lanes{};
  for (size_t bits = 0; bits < lanes.size(); ++bits) {
    size_t found = 0;
    for (uint8_t lane = 0; lane < 8; ++lane) {
      if ((bits >> lane & 1) != 0) lanes[bits][found++] = lane;
    }
  }
  return lanes;
}();

// Writes a vector's candidates, whatever there are: whether there is one is hard to foretell.
BALLAST_AVX2 inline int32_t take_avx2(__m256i value, __m256i below, __m256i best, int32_t first,
                                      int32_t* expert, int32_t* deficit) {
  const __m256i within = _mm256_cmpgt_epi32(value, below);
  const auto bits = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(within)));
  const auto* packed = reinterpret_cast<const __m128i*>(kLanesOf[bits].data());
  const __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(packed));
  const __m256i deficits = _mm256_permutevar8x32_epi32(_mm256_sub_epi32(best, value), lanes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(expert),
                      _mm256_add_epi32(lanes, _mm256_set1_epi32(first)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(deficit), deficits);
  return __builtin_popcount(bits);
}

BALLAST_AVX2 int64_t scan_avx2(const CandidateScan& scan, const float* scores, int64_t stride,
                               int64_t rows, const ScanOutput& to) {
  const auto [scanned, expert, deficit] = to;
  const int64_t whole = scan.experts / 8 * 8;
  std::array<int32_t, kScanBlock> bests;
  for (int64_t r = 0; r < rows; ++r) bests[r] = best_avx2(scan, scores + r * stride);
  int64_t kept = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * stride;
    const int32_t least = threshold(bests[r], scan.reach);
    const __m256i best = _mm256_set1_epi32(bests[r]);
    const __m256i below = _mm256_set1_epi32(least - 1);
    int32_t found = 0;
    for (int64_t e = 0; e < whole; e += 8) {
      found += take_avx2(profits_avx2(scan, row, e), below, best, static_cast<int32_t>(e),
                         expert + kept + found, deficit + kept + found);
    }
    for (int64_t e = whole; e < scan.experts; ++e) {
      const int32_t value = profit(scan, row, e);
      expert[kept + found] = static_cast<int32_t>(e);
      deficit[kept + found] = bests[r] - value;
      found += value >= least ? 1 : 0;
    }
    kept = keep_several(expert, found, kept, scanned[r]);
  }
  return kept;
}

#define BALLAST_AVX512 __attribute__((target("avx512f,popcnt")))

BALLAST_AVX512 inline __m512i profits_avx512(const CandidateScan& scan, const float* row,
                                             int64_t e) {
  const __m512 scaled =
      _mm512_mul_ps(_mm512_loadu_ps(row + e), _mm512_set1_ps(scan.units_per_score));
  return _mm512_sub_epi32(_mm512_cvttps_epi32(scaled), _mm512_loadu_si512(scan.prices + e));
}

// The last experts of a row, which do not fill a vector; lanes beyond them are below everything.
BALLAST_AVX512 inline __m512i last_profits_avx512(const CandidateScan& scan, const float* row,
                                                  int64_t e) {
  const auto lanes = static_cast<__mmask16>((1U << (scan.experts - e)) - 1);
  const __m512 scaled =
      _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, row + e), _mm512_set1_ps(scan.units_per_score));
  const __m512i prices = _mm512_maskz_loadu_epi32(lanes, scan.prices + e);
  const __m512i lowest = _mm512_set1_epi32(kLowest);
  return _mm512_mask_sub_epi32(lowest, lanes, _mm512_cvttps_epi32(scaled), prices);
}

// Writes a vector's candidates, whatever there are: whether there is one is hard to foretell.
BALLAST_AVX512 inline int32_t take_avx512(__m512i value, __m512i least, __m512i best,
                                          __m512i numbers, int32_t* expert, int32_t* deficit) {
  const __mmask16 within = _mm512_cmpge_epi32_mask(value, least);
  _mm512_storeu_si512(expert, _mm512_maskz_compress_epi32(within, numbers));
  _mm512_storeu_si512(deficit, _mm512_maskz_compress_epi32(within, _mm512_sub_epi32(best, value)));
  return __builtin_popcount(within);
}

BALLAST_AVX512 int64_t scan_avx512(const CandidateScan& scan, const float* scores, int64_t stride,
                                   int64_t rows, const ScanOutput& to) {
  const auto [scanned, expert, deficit] = to;
  const int64_t whole = scan.experts / 16 * 16;
  std::array<int32_t, kScanBlock> bests;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * stride;
    __m512i most = _mm512_set1_epi32(kLowest);
    for (int64_t e = 0; e < whole; e += 16) {
      most = _mm512_max_epi32(most, profits_avx512(scan, row, e));
    }
    if (whole < scan.experts) most = _mm512_max_epi32(most, last_profits_avx512(scan, row, whole));
    bests[r] = _mm512_reduce_max_epi32(most);
  }
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t kept = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = scores + r * stride;
    const __m512i best = _mm512_set1_epi32(bests[r]);
    const __m512i least = _mm512_set1_epi32(threshold(bests[r], scan.reach));
    __m512i numbers = lane;
    int32_t found = 0;
    for (int64_t e = 0; e < whole; e += 16) {
      found += take_avx512(profits_avx512(scan, row, e), least, best, numbers,
                           expert + kept + found, deficit + kept + found);
      numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(16));
    }
    if (whole < scan.experts) {
      found += take_avx512(last_profits_avx512(scan, row, whole), least, best, numbers,
                           expert + kept + found, deficit + kept + found);
    }
    kept = keep_several(expert, found, kept, scanned[r]);
  }
  return kept;
}

}  // namespace

std::span<const std::string_view> scan_instruction_sets() {
#ifdef BALLAST_ONLY_INSTRUCTION_SET
  static constexpr std::array<std::string_view, 1> kOnly = {BALLAST_ONLY_INSTRUCTION_SET};
  return kOnly;
#endif
  static constexpr std::array<std::string_view, 3> kAll = {"avx512", "avx2", "plain"};
  const size_t missing = __builtin_cpu_supports("avx512f") != 0 ? 0
                         : __builtin_cpu_supports("avx2") != 0  ? 1
                                                                : 2;
  return std::span(kAll).subspan(missing);
}

ScanRows scan_rows_with(std::string_view instruction_set) {
  if (instruction_set == "avx512") return scan_avx512;
  if (instruction_set == "avx2") return scan_avx2;
  if (instruction_set == "plain") return scan_plain;
  throw std::invalid_argument("no such instruction set: " + std::string(instruction_set));
}

}  // namespace ballast::assignment
