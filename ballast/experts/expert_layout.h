// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/experts/expert_rows.h"

namespace ballast::experts {

// How a GPU multiplies each expert's rows with the expert's own matrix.
enum class ExpertLayout {
  kEqualBlocks,  // blocks of equal size, filled up with zeros: one strided product
  kGroupedRows   // one kernel that reads on the device where experts end
};

// The faster one. rows_of_expert: empty where only the device knows them; `weights`: the elements
// of an expert's matrix.
ExpertLayout choose_layout(const std::vector<int64_t>& rows_of_expert, int64_t weights);

// Whether the host knows that all experts have equally many rows.
bool has_equal_blocks(const ExpertRows& rows);

// The same rows. Their counts are added where only a GPU knows them and waiting for them pays:
// products of `num_rows` rows are so large that equal blocks, which need counts, save more than the
// wait.
ExpertRows with_counts_if_worth(const ExpertRows& rows, int64_t num_rows, int64_t weights);

// The rows of a block: the most an expert has, rounded up to whole tiles.
int64_t rows_of_block(const std::vector<int64_t>& rows_of_expert);

}  // namespace ballast::experts
