// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "ballast/kernels/expert_gate_paths.h"
#include "ballast/kernels/expert_row_loops.h"
#include "ballast/kernels/expert_rows.h"

namespace ballast {
namespace {

using at::Tensor;

// Fewer elements than this are not worth a thread of their own.
constexpr int64_t kElementsPerTask = 16384;

std::vector<ExpertPiece> cut(const Tensor& h, at::IntArrayRef rows_of_expert, int64_t& tasks) {
  tasks = choose_tasks(h.size(0), kElementsPerTask / (h.size(1) + 1) + 1);
  return expert_pieces(rows_of_expert, h.size(0), tasks);
}

template <typename Scalar>
const Scalar* slice(const Tensor& stack, int64_t index) {
  return stack.const_data_ptr<Scalar>() + index * stack.stride(0);
}
template <typename Scalar>
Scalar* mutable_slice(const Tensor& stack, int64_t index) {
  return stack.data_ptr<Scalar>() + index * stack.stride(0);
}

}  // namespace

GatedRows gated_residual_cpu(const Tensor& h, const Tensor& stack, at::IntArrayRef rows_of_expert,
                             const Tensor& embeddings) {
  GatedRows result{at::empty_like(h), at::empty({h.size(0), 1}, h.options())};
  int64_t tasks = 1;
  const auto pieces = cut(h, rows_of_expert, tasks);
  AT_DISPATCH_FLOATING_TYPES(h.scalar_type(), "gated_residual", [&] {
    for_each_piece(pieces, tasks, [&](size_t i) {
      const ExpertPiece& piece = pieces[i];
      gate_rows(GateRows<scalar_t>{.rows = piece.rows,
                                   .width = h.size(1),
                                   .h = slice<scalar_t>(h, piece.row),
                                   .stack = slice<scalar_t>(stack, piece.row),
                                   .embedding = slice<scalar_t>(embeddings, piece.expert),
                                   .y = mutable_slice<scalar_t>(result.y, piece.row),
                                   .gate = mutable_slice<scalar_t>(result.gates, piece.row)});
    });
  });
  return result;
}

GateGradients gated_residual_backward_cpu(const GateInputs& in, const Tensor& dy) {
  GateGradients result{at::empty_like(in.h), at::empty_like(in.h)};
  int64_t tasks = 1;
  const auto pieces = cut(in.h, in.rows_of_expert, tasks);
  const int64_t width = in.h.size(1);
  const Tensor columns = at::zeros({static_cast<int64_t>(pieces.size()), width}, dy.options());
  AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "gated_residual_backward", [&] {
    for_each_piece(pieces, tasks, [&](size_t i) {
      const ExpertPiece& piece = pieces[i];
      gate_rows_backward(GateGradientRows<scalar_t>{
          .rows = piece.rows,
          .width = width,
          .h = slice<scalar_t>(in.h, piece.row),
          .stack = slice<scalar_t>(in.stack, piece.row),
          .embedding = slice<scalar_t>(in.embeddings, piece.expert),
          .gate = slice<scalar_t>(in.gates, piece.row),
          .dy = slice<scalar_t>(dy, piece.row),
          .dh = mutable_slice<scalar_t>(result.dh, piece.row),
          .dstack = mutable_slice<scalar_t>(result.dstack, piece.row),
          .dembedding = mutable_slice<scalar_t>(columns, static_cast<int64_t>(i))});
    });
    if (!in.embedding_sums.defined()) return;
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto* const sum = mutable_slice<scalar_t>(in.embedding_sums, pieces[i].expert);
      const auto* const terms = slice<scalar_t>(columns, static_cast<int64_t>(i));
      for (int64_t j = 0; j < width; ++j) sum[j] += terms[j];
    }
  });
  return result;
}

}  // namespace ballast
