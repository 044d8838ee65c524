// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

namespace ballast::experts {

// How many rows each of E experts has, among rows sorted by expert. The host knows the counts, or
// only the device that computes the rows, or both.
struct ExpertRows {
  ExpertRows(at::IntArrayRef rows_of_expert) : counts(rows_of_expert.vec()) {}
  ExpertRows(const std::vector<int64_t>& rows_of_expert) : counts(rows_of_expert) {}
  ExpertRows(std::initializer_list<int64_t> rows_of_expert) : counts(rows_of_expert) {}
  // ends_of_experts [E] int32: expert e has the rows [ends[e - 1], ends[e]). REQUIRES: they never
  // fall, and the last is the number of rows.
  explicit ExpertRows(at::Tensor ends_of_experts, std::vector<int64_t> rows_of_expert = {})
      : counts(std::move(rows_of_expert)), ends(std::move(ends_of_experts)) {}

  int64_t experts() const;
  // Waits for the device where only it knows them.
  std::vector<int64_t> counts_on_host() const;

  std::vector<int64_t> counts;  // [E]; empty: only the device knows
  at::Tensor ends;              // undefined: only the host knows
};

// Rows where their experts are. The experts have M slots, sorted by expert: slot s holds row
// row_of_slot[s] (negative: nobody's), and row r stands in slot slot_of_row[r], each in exactly
// one.
struct RoutedRows {
  at::Tensor rows;                                // [N, D]
  ExpertRows rows_of_expert = {};                 // slots of each, M in all
  at::Tensor row_of_slot = {}, slot_of_row = {};  // int64; undefined: row r is in slot r

  int64_t slots() const { return row_of_slot.defined() ? row_of_slot.size(0) : rows.size(0); }
};

// Neighbouring experts with equally many rows each, in tensors whose rows are sorted by expert.
struct ExpertGroup {
  int64_t expert, experts;  // first, how many
  int64_t row, rows;        // first, how many each; never zero

  // Their rows of x [N, D] -> [experts, rows, D], and their slices of a stack of weights. Views.
  at::Tensor rows_of(const at::Tensor& x) const;
  at::Tensor slices_of(const at::Tensor& stack) const;
};

// All experts that have rows, as few groups as possible. Refuses what does not sum to `rows`.
std::vector<ExpertGroup> expert_groups(at::IntArrayRef rows_of_expert, int64_t rows);

// Rows of one expert that one thread computes: all its rows, or a part where threads meet.
struct ExpertPiece {
  int64_t task, expert;
  int64_t row, rows;        // in tensors of N rows
  int64_t first, together;  // its first row among the expert's rows; the number of those

  bool whole() const { return rows == together; }
  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, row, rows); }
};

// All rows, in order, for `tasks` threads with about equally many rows each.
std::vector<ExpertPiece> expert_pieces(at::IntArrayRef rows_of_expert, int64_t rows, int64_t tasks);
// As many threads as libtorch has, but none with fewer than `rows_each`.
int64_t choose_tasks(int64_t rows, int64_t rows_each);

// Calls work(i) for each piece, those of different tasks on different threads, without autograd.
void for_each_piece(const std::vector<ExpertPiece>& pieces, int64_t tasks,
                    const std::function<void(size_t)>& work);

}  // namespace ballast::experts
