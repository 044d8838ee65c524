// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/expert_row_loops.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/kernels/gemm.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// Fewer rows than this are not worth a thread of their own.
constexpr int64_t kRowsPerTask = 32;

enum Kept { kNormed, kMean, kInverse, kActive };  // from kActive on: one for each piece

template <typename Scalar>
void normalize(const ExpertPiece& piece, const Tensor& x, const ExpertStacks& w,
               const std::vector<Tensor>& kept) {
  normalize_rows(NormRows<Scalar>{
      .rows = piece.rows,
      .width = x.size(1),
      .x = x.const_data_ptr<Scalar>() + piece.row * x.size(1),
      .weight = w.norm.const_data_ptr<Scalar>() + piece.expert * w.norm.stride(0),
      .bias = w.norm_bias.const_data_ptr<Scalar>() + piece.expert * w.norm_bias.stride(0),
      .y = kept[kNormed].data_ptr<Scalar>() + piece.row * x.size(1),
      .mean = kept[kMean].data_ptr<Scalar>() + piece.row,
      .inverse = kept[kInverse].data_ptr<Scalar>() + piece.row});
}

// A backward pass, piece by piece.
template <typename Scalar>
class Backward {
 public:
  Backward(const Tensor& dy, const Tensor& x, const ExpertStacks& weights, const ExpertStacks& sums,
           const KeptForBackward& kept, std::vector<ExpertPiece> pieces)
      : dy_(dy),
        x_(x),
        weights_(weights),
        sums_(sums),
        kept_(kept),
        pieces_(std::move(pieces)),
        width_(x.size(1)),
        inner_(weights.up.size(1)),
        dx_(at::empty_like(x)),
        dactive_(pieces_.size()),
        columns_(
            at::zeros({static_cast<int64_t>(pieces_.size()), inner_ + 3 * width_}, x.options())) {}

  Tensor run() {
    const auto parts = std::any_of(pieces_.begin(), pieces_.end(),
                                   [](const ExpertPiece& piece) { return !piece.whole(); });
    for_each_piece(pieces_, kept_.tasks, [&](size_t i) {
      input_gradient(i);
      if (!pieces_[i].whole()) return;
      add_columns(i);
      add_weight_gradients(i);
      dactive_[i] = Tensor();
    });
    if (!parts) return dx_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!pieces_[i].whole()) add_columns(i);
    }
    for_each_piece(pieces_, kept_.tasks, [&](size_t i) {
      if (!pieces_[i].whole()) add_weight_gradients(i);
    });
    return dx_;
  }

 private:
  const Tensor& active(size_t i) const { return kept_.tensors[kActive + i]; }
  Scalar* columns(size_t i) const {
    return columns_.data_ptr<Scalar>() + static_cast<int64_t>(i) * columns_.size(1);
  }

  void input_gradient(size_t i) {
    const ExpertPiece& piece = pieces_[i];
    dactive_[i] = kernels::multiply_weight(piece.of(dy_), weights_.down[piece.expert]);  // [R, F]
    mask_inactive(MaskRows<Scalar>{.rows = piece.rows,
                                   .width = inner_,
                                   .active = active(i).template const_data_ptr<Scalar>(),
                                   .dactive = dactive_[i].template data_ptr<Scalar>(),
                                   .sum = columns(i)});
    const Tensor dnormed =
        kernels::multiply_weight(dactive_[i], weights_.up[piece.expert]);  // [R, D]
    const auto rows_of = [&](const Tensor& t) {
      return t.const_data_ptr<Scalar>() + piece.row * width_;
    };
    Scalar* const sums = columns(i) + inner_;
    normalize_rows_backward(NormGradientRows<Scalar>{
        .rows = piece.rows,
        .width = width_,
        .x = rows_of(x_),
        .mean = kept_.tensors[kMean].const_data_ptr<Scalar>() + piece.row,
        .inverse = kept_.tensors[kInverse].const_data_ptr<Scalar>() + piece.row,
        .weight = weights_.norm.const_data_ptr<Scalar>() + piece.expert * weights_.norm.stride(0),
        .dnormed = dnormed.const_data_ptr<Scalar>(),
        .dy = rows_of(dy_),
        .dx = dx_.template data_ptr<Scalar>() + piece.row * width_,
        .dweight = sums,
        .dbias = sums + width_,
        .dy_sum = sums + 2 * width_});
  }

  // Adds what the piece's columns sum to.
  void add_columns(size_t i) {
    const Scalar* from = columns(i);
    for (const Tensor& stack : {sums_.up_bias, sums_.norm, sums_.norm_bias, sums_.down_bias}) {
      const int64_t size = from == columns(i) ? inner_ : width_;
      if (stack.defined()) {
        Scalar* const sum = stack.data_ptr<Scalar>() + pieces_[i].expert * stack.stride(0);
        for (int64_t j = 0; j < size; ++j) sum[j] += from[j];
      }
      from += size;
    }
  }

  // The piece's share of the rows of its expert's weights: the sums over all the expert's pieces.
  void add_weight_gradients(size_t i) {
    const ExpertPiece& piece = pieces_[i];
    const auto share = [&](int64_t size, int64_t row) {
      return row == piece.together ? size : size * row / piece.together / 16 * 16;
    };
    const auto add_share = [&](const Tensor& stack, const auto& left, const auto& right) {
      if (!stack.defined()) return;
      const int64_t first = share(stack.size(1), piece.first),
                    count = share(stack.size(1), piece.first + piece.rows) - first;
      if (count == 0) return;
      const Tensor sum = stack[piece.expert].narrow(0, first, count);
      for (size_t j = first_piece_of(piece.expert); j < pieces_.size(); ++j) {
        if (pieces_[j].expert != piece.expert) break;
        kernels::add_outer_products(sum, left(j).narrow(1, first, count), right(j));
      }
    };
    add_share(
        sums_.up, [&](size_t j) { return dactive_[j]; },
        [&](size_t j) { return pieces_[j].of(kept_.tensors[kNormed]); });
    add_share(
        sums_.down, [&](size_t j) { return pieces_[j].of(dy_); },
        [&](size_t j) { return active(j); });
  }

  size_t first_piece_of(int64_t expert) const {
    return std::lower_bound(pieces_.begin(), pieces_.end(), expert,
                            [](const ExpertPiece& piece, int64_t e) { return piece.expert < e; }) -
           pieces_.begin();
  }

  const Tensor &dy_, &x_;
  const ExpertStacks &weights_, &sums_;
  const KeptForBackward& kept_;
  std::vector<ExpertPiece> pieces_;
  int64_t width_, inner_;
  Tensor dx_;
  std::vector<Tensor> dactive_;
  Tensor
      columns_;  // of each piece: sums of dactive [F], of the norm's gradients and of dy [D] each
};

}  // namespace

// Without a backward pass products are those of libtorch, not of oneDNN: it keeps code for every
// number of rows that it has met, tens of kilobytes each.
Tensor expert_feed_forward_cpu(const Tensor& x, at::IntArrayRef rows_of_expert,
                               const ExpertStacks& w, KeptForBackward& kept) {
  kept.tasks = choose_tasks(x.size(0), kRowsPerTask);
  const auto pieces = expert_pieces(rows_of_expert, x.size(0), kept.tasks);
  kept.tensors = {at::empty_like(x), at::empty({x.size(0)}, x.options()),
                  at::empty({x.size(0)}, x.options())};
  kept.tensors.resize(kActive + pieces.size());
  const Tensor y = at::empty_like(x);
  for_each_piece(pieces, kept.tasks, [&](size_t i) {
    const ExpertPiece& piece = pieces[i];
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "expert_feed_forward",
                               [&] { normalize<scalar_t>(piece, x, w, kept.tensors); });
    const Tensor normed = piece.of(kept.tensors[kNormed]);
    Tensor y_here = piece.of(y);
    if (!kept.has_backward) {
      const Tensor active =
          at::addmm(w.up_bias[piece.expert], normed, w.up[piece.expert].t()).relu_();
      at::addmm_out(y_here, w.down_bias[piece.expert], active, w.down[piece.expert].t());
      y_here.add_(piece.of(x));
      return;
    }
    Tensor& active = kept.tensors[kActive + i];
    active = kernels::multiply_transposed(normed, w.up[piece.expert], w.up_bias[piece.expert],
                                          kernels::Activation::kRelu);
    at::add_out(
        y_here, piece.of(x),
        kernels::multiply_transposed(active, w.down[piece.expert], w.down_bias[piece.expert]));
  });
  return y;
}

Tensor expert_feed_forward_backward_cpu(const Tensor& dy, const Tensor& x,
                                        at::IntArrayRef rows_of_expert, const ExpertStacks& weights,
                                        const ExpertStacks& sums, const KeptForBackward& kept) {
  return AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "expert_feed_forward_backward", [&] {
    return Backward<scalar_t>(dy, x, weights, sums, kept,
                              expert_pieces(rows_of_expert, x.size(0), kept.tasks))
        .run();
  });
}

namespace {

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

}  // namespace ballast::experts
