// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/assignment/problem.h"
#include "ballast/system/file.h"

namespace ballast::scores {

// Scores with the memory they lie in.
struct StoredScores {
  assignment::ScoreMatrix matrix;
  std::shared_ptr<const void> memory;
};

StoredScores store_scores(std::vector<float> scores, int64_t tokens, int64_t experts);

// Scores [T, E] from .npy, .safetensors (its only matrix, or FILE:NAME), .csv or .txt; fp16, bf16
// and fp32 as they are, others as fp32. UserError: anything else, with the place; beyond fp32.
StoredScores read_scores(const std::string& where);

// Numbers of one dimension (a column or a row will do) from a .npy, .csv or .txt file.
std::vector<double> read_numbers(const fs::path& path);
// The same where only whole numbers make sense; UserError names the first that is not.
std::vector<int64_t> read_whole_numbers(const fs::path& path);

// A list of numbers as .npy or .csv, by the end of the name; the latter one a line, and read back
// exactly. UserError: any other name, or a file that cannot be written.
void write_numbers(const fs::path& path, std::span<const int32_t> numbers);
void write_numbers(const fs::path& path, std::span<const double> numbers);
// UserError if write_numbers would refuse the name: to know before the work is done.
void check_numbers_path(const fs::path& path);

}  // namespace ballast::scores
