// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/comm/communicator.h"

namespace ballast {

// A way for the rows of all workers: reordered here, sent, reordered there.
struct RowExchange {
  at::Tensor row_of_slot;  // [M] int64: the row that stands there in what is sent; -1: zeros
  at::Tensor slot_of_row;  // [N] int64, its inverse
  RowsOfWorker send, receive;
  // [sum of receive] int64 each; undefined: rows stay as they arrive.
  at::Tensor arrival_of_place, place_of_arrival;
};

// x [N, D] -> [sum of receive, D]; collective, also backward.
at::Tensor exchange(Communicator& workers, const at::Tensor& x, const RowExchange& way,
                    Label label);
// The rows of what exchange() gave, back where they came from. [sum of receive, D] -> [N, D]
at::Tensor exchange_back(Communicator& workers, const at::Tensor& y, const RowExchange& way,
                         Label label);

// Which worker of all holds which experts: as many each, in order.
struct ExpertPlaces {
  int64_t experts = 1, workers = 1;
  int64_t local() const { return experts / workers; }
};

// The way to the experts, and how many rows each expert of this worker gets.
struct Dispatch {
  RowExchange way;
  std::vector<int64_t> rows_of_expert;
};

// For equal loads. Each group of each expert gets a block of `ceil(T/G / E)` rows, the last of them
// zeros where the group's load is less: all sizes are known beforehand, nothing waits for a GPU.
// An expert's rows are in the order of groups, then of tokens: whoever computes them.
// expert_of_token, place_of_token [P, T/G] int32, loads [P, E] int32, as TensorAssignment has them.
Dispatch dispatch_balanced(const ExpertPlaces& places, const at::Tensor& expert_of_token,
                           const at::Tensor& place_of_token, const at::Tensor& loads);
// For any loads, also workers without tokens: the counts are exchanged first. Collective.
// expert_of_token [T] int64. An expert's rows are in the order of workers, then of tokens.
Dispatch dispatch_by_counts(Communicator& workers, int64_t experts,
                            const at::Tensor& expert_of_token, Label label);

}  // namespace ballast
