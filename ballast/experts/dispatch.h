// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/comm/machine_hops.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/step/step_watch.h"

namespace ballast::experts {

// How rows travel between workers: they are reordered here, sent, and reordered where they arrive.
struct RowExchange {
  at::Tensor row_of_slot;  // [M] int64: the row in each slot of what is sent; -1: zeros
  // The slot of each row, int64; negative: it is not sent. [N], or [N, K] where a row is sent up to
  // K times.
  at::Tensor slot_of_row;
  comm::RowsOfWorker send, receive;
  bool is_even = false;  // each worker sends as many to each
  // Where rows go in two hops and are not even: what the workers of this machine send and get.
  comm::RowsOfMachine of_machine = {};
  // [sum of receive] int64 each; undefined: rows stay as they arrive.
  at::Tensor arrival_of_place, place_of_arrival;
};

// Whom rows travel between, and how.
struct Travel {
  // NOLINTNEXTLINE(google-explicit-constructor): straight from worker to worker
  Travel(comm::Communicator& workers, const comm::MachineHops* hops = nullptr)
      : workers(workers), hops(hops) {}
  comm::Communicator& workers;
  const comm::MachineHops* hops;  // null: straight
};

// x [N, D] -> [sum of receive, D]; collective, also backward. `watch` is told while rows are sent.
at::Tensor exchange(const Travel& travel, const at::Tensor& x, const RowExchange& way,
                    comm::Label label, step::StepWatch* watch = nullptr);
// The way back, to where rows came from. [sum of receive, D] -> [N, D]. REQUIRES: each was sent at
// most once.
at::Tensor exchange_back(const Travel& travel, const at::Tensor& y, const RowExchange& way,
                         comm::Label label, step::StepWatch* watch = nullptr);

// The order in which a worker's tokens are cut into groups. int64 [T] each, inverse to each other;
// undefined: tokens are taken as they stand.
struct TokenOrder {
  at::Tensor row_of_position, position_of_row;
  bool defined() const { return row_of_position.defined(); }
};

// Which worker of all holds which experts: as many each, in order.
struct ExpertPlaces {
  int64_t experts = 1, workers = 1;
  int64_t local() const { return experts / workers; }
};

// Where this worker's tokens go, and what they take of what comes back.
struct Dispatch {
  RowExchange way;                 // to the experts
  ExpertRows rows_of_expert = {};  // that each expert of this worker gets
  // [T, K]: the weights of each token's experts, with a gradient; undefined: the gate is applied at
  // the expert.
  at::Tensor weights = {};
};

// x [N, D] -> [M, D], the rows of what is sent.
at::Tensor in_slots(const at::Tensor& x, const RowExchange& way);
// What came back, [M, D], at the rows it came from, [N, D]; where rows were sent several times, as
// it is.
at::Tensor to_tokens(const at::Tensor& back, const RowExchange& way);

// Brings tokens to their experts. Where a worker is alone and sends each token at most once, the
// rows are the tokens themselves.
RoutedRows to_experts(const Travel& travel, const at::Tensor& tokens, const Dispatch& dispatch,
                      comm::Label label, step::StepWatch* watch = nullptr);
// Brings back what experts made of those rows. Where each token was sent at most once, rows return
// to their tokens, [T, D]; else they are in the order in which they were sent.
at::Tensor from_experts(const Travel& travel, const at::Tensor& rows, const Dispatch& dispatch,
                        comm::Label label, step::StepWatch* watch = nullptr);

// In blocks of slots of equal size, one for each expert and group, numbered by expert, then group.
// Slots that are nobody's (-1) become rows of zeros. So all sizes are known beforehand, and nothing
// waits for a GPU. slot_of_row [T, K], or [T] to have rows return to their tokens; row_of_slot
// [M], as BalancedSlots and BlockSlots have them.
Dispatch dispatch_blocks(const ExpertPlaces& places, const at::Tensor& slot_of_row,
                         const at::Tensor& row_of_slot);
// For any loads, also of workers without tokens: the counts are exchanged first. Collective. expert
// [T], or [K, T] for K choices of each token, int64; the number of experts stands for none. An
// expert's rows are in the order of workers, then of choices, then of tokens.
Dispatch dispatch_by_counts(comm::Communicator& workers, int64_t experts, const at::Tensor& expert,
                            comm::Label label);
// The same for a worker that is alone. The device counts; the host neither knows nor waits. A
// choice of none becomes a row of zeros at the last expert.
Dispatch dispatch_uncounted(int64_t experts, const at::Tensor& expert);
// The one of these two that suits experts who compute in `type`: on a GPU in bf16 they take rows
// that nobody counted; elsewhere each sublayer would count them. expert [K, T]. Collective.
Dispatch dispatch_unlimited(comm::Communicator& workers, int64_t experts, const at::Tensor& expert,
                            at::ScalarType type, comm::Label label);

}  // namespace ballast::experts
