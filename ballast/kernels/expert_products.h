// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/kernels/expert_rows.h"

namespace ballast {

// How a GPU multiplies each expert's rows with the expert's own matrix, where the experts have
// unequally many.
enum class ProductWay : int64_t {
  kPadded,   // blocks of equal size, filled up with zeros: one strided product
  kGrouped,  // one kernel that reads on the device where experts end
  kEach      // one product after another
};

// The fastest one. rows_of_expert: empty where only the device knows them; `weights`: the elements
// of an expert's matrix.
ProductWay choose_product_way(const std::vector<int64_t>& rows_of_expert, int64_t weights);

// The same, where only a GPU knows them and products of `num_rows` rows are so large that the host
// had better wait for the counts, which allow the faster ways: with counts.
ExpertRows with_counts_if_worth(const ExpertRows& rows, int64_t num_rows, int64_t weights);

// The rows of a block of kPadded: the most an expert has, rounded up to whole tiles.
int64_t rows_of_block(const std::vector<int64_t>& rows_of_expert);

}  // namespace ballast
