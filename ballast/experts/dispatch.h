// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/step/step_watch.h"

namespace ballast {

// A way for the rows of all workers: reordered here, sent, reordered there.
struct RowExchange {
  at::Tensor row_of_slot;  // [M] int64: the row that stands there in what is sent; -1: zeros
  // Where each row stands there, int64, negative: nowhere. [N], or [N, K]: it is sent up to K
  // times.
  at::Tensor slot_of_row;
  RowsOfWorker send, receive;
  // [sum of receive] int64 each; undefined: rows stay as they arrive.
  at::Tensor arrival_of_place, place_of_arrival;
};

// x [N, D] -> [sum of receive, D]; collective, also backward. `watch` is told while rows are sent.
at::Tensor exchange(Communicator& workers, const at::Tensor& x, const RowExchange& way, Label label,
                    StepWatch* watch = nullptr);
// And where they came from. [sum of receive, D] -> [N, D]. REQUIRES: each was sent at most once.
at::Tensor exchange_back(Communicator& workers, const at::Tensor& y, const RowExchange& way,
                         Label label, StepWatch* watch = nullptr);

// Which worker of all holds which experts: as many each, in order.
struct ExpertPlaces {
  int64_t experts = 1, workers = 1;
  int64_t local() const { return experts / workers; }
};

// Where this worker's tokens go, and what they take of what comes back.
struct Dispatch {
  RowExchange way;                 // to the experts
  ExpertRows rows_of_expert = {};  // that each expert of this worker gets
  // [T, K] of each token's experts, with their gradient; undefined: the gate stands at the expert.
  at::Tensor weights = {};
};

// The rows of a worker that is alone, and sends each at most once, are the tokens themselves.
RoutedRows to_experts(Communicator& workers, const at::Tensor& tokens, const Dispatch& dispatch,
                      Label label, StepWatch* watch = nullptr);
// What became of these rows, where those are, back: of ways that send each row at most once to its
// token, [T, D]; else in the order in which they were sent.
at::Tensor from_experts(Communicator& workers, const at::Tensor& rows, const Dispatch& dispatch,
                        Label label, StepWatch* watch = nullptr);

// For equal loads. Each group of each expert gets a block of `ceil(T/G / E)` rows, the last of them
// zeros where the group's load is less: all sizes are known beforehand, nothing waits for a GPU.
// An expert's rows are in the order of groups, then of tokens: whoever computes them.
// expert_of_token, place_of_token [P, T/G] and loads [P, E], integers, as TensorAssignment has
// them.
Dispatch dispatch_balanced(const ExpertPlaces& places, const at::Tensor& expert_of_token,
                           const at::Tensor& place_of_token, const at::Tensor& loads);
// For loads up to `block` in each group: blocks of that size, filled up with zeros.
// expert [P, K, T/G] int64, the K choices of each token (the number of experts: none), and their
// rank among those of a group that chose the same: those of `block` and more are not sent.
Dispatch dispatch_blocks(const ExpertPlaces& places, const at::Tensor& expert,
                         const at::Tensor& rank, int64_t block);
// For any loads, also workers without tokens: the counts are exchanged first. Collective.
// expert [T], or [K, T]: K choices of each token; int64, the number of experts: none. An expert's
// rows are in the order of workers, then of choices, then of tokens.
Dispatch dispatch_by_counts(Communicator& workers, int64_t experts, const at::Tensor& expert,
                            Label label);
// The same for a worker that is alone: the device counts, and the host neither knows nor waits.
// Where a choice is none, a row of zeros is there for it, at the last expert.
Dispatch dispatch_uncounted(int64_t experts, const at::Tensor& expert);
// The one of these two that suits experts who compute in `type`: on a GPU in bf16 they take rows
// that nobody counted; elsewhere each sublayer would count them. expert [K, T]. Collective.
Dispatch dispatch_unlimited(Communicator& workers, int64_t experts, const at::Tensor& expert,
                            at::ScalarType type, Label label);

// Where the tokens are: h + sum over its experts of weight (y - h), of tokens h [T, D] and what
// from_experts brought back. REQUIRES: slot_of_row is [T, K], weights are there.
at::Tensor mix_at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                         const Dispatch& dispatch);

}  // namespace ballast
