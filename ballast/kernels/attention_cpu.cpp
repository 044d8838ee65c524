// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ballast/kernels/attention_paths.h"
#include "ballast/kernels/vector_math.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using Mixed = TiledAttention::Mixed;

constexpr int64_t kTile = TiledAttention::kTile;
// Each shape of a product is made into code once: of longer sequences there would be many.
constexpr int64_t kLongest = 1024;
constexpr int64_t kWidestHead = 128;

enum class Write { kAnew, kAdded };

// c [m, n] = a [m, k] b [k, n], or added to it
struct Product {
  int64_t m, n, k;
  void operator()(Rows<const float> a, Rows<const float> b, Rows<float> c,
                  Write write = Write::kAnew) const {
    at::native::cpublas::brgemm(m, n, k, a.stride, b.stride, c.stride, write == Write::kAdded,
                                a.data, b.data, c.data);
  }
};

bool has_products() {
  static const bool has = [] {
    std::array<float, 256> a{}, b{}, c{};
    try {
      Product{16, 16, 16}({a.data(), 16}, {b.data(), 16}, {c.data(), 16});
      return true;
    } catch (const std::exception&) {  // libtorch's, or oneDNN's own
      return false;
    }
  }();
  return has;
}

// One head of one sequence.
struct Head {
  Rows<const float> queries, keys, values;
  int64_t context, width;
  float scale;
};

struct Shape {
  Shape(const Tensor& qkv, int64_t sequences, int64_t of_heads)
      : rows(sequences),
        heads(of_heads),
        context(qkv.size(0) / sequences),
        width(qkv.size(1) / 3),
        head_width(width / of_heads) {}

  // Where the head's part of rows `stride` wide starts.
  int64_t offset(int64_t head, int64_t stride) const {
    return head / heads * context * stride + head % heads * head_width;
  }
  Head head(const float* qkv, int64_t number) const {
    const float* const start = qkv + offset(number, 3 * width);
    return {{start, 3 * width},
            {start + width, 3 * width},
            {start + 2 * width, 3 * width},
            context,
            head_width,
            1 / std::sqrt(static_cast<float>(head_width))};
  }
  int64_t rows, heads, context, width, head_width;
};

// Memory for a head's tiles.
struct Workspace {
  explicit Workspace(const Shape& s)
      : columns(static_cast<size_t>(s.context * s.head_width)),
        scores(static_cast<size_t>(s.context * kTile)),
        gradients(static_cast<size_t>(s.context * kTile)),
        tile(static_cast<size_t>(s.head_width * kTile)),
        other_tile(static_cast<size_t>(s.head_width * kTile)) {}

  static Rows<float> tiled(std::vector<float>& of) { return {of.data(), kTile}; }

  std::vector<float> columns;            // keys on end, [D/H, S]
  std::vector<float> scores, gradients;  // [S, kTile], or [kTile, S]
  std::vector<float> tile, other_tile;   // [D/H, kTile]
};

void mix_head(const Head& head, Rows<float> mixed, float* logsumexp, Workspace& work) {
  const Rows<float> keys{work.columns.data(), head.context},
      scores{work.scores.data(), head.context};
  vector_transpose(head.keys, head.context, head.width, keys);
  for (int64_t first = 0; first < head.context; first += kTile) {
    const int64_t keys_there = first + kTile;
    Product{kTile, keys_there, head.width}(head.queries.from(first), {keys.data, keys.stride},
                                           scores);
    for (int64_t i = 0; i < kTile; ++i) {
      float* const row = scores.row(i);
      const int64_t seen = first + i + 1;
      for (int64_t j = 0; j < seen; ++j) row[j] *= head.scale;
      const float maximum = vector_maximum(row, seen);
      const float sum = vector_exponentiate(row, seen, maximum);
      const float inverse = 1 / sum;
      for (int64_t j = 0; j < seen; ++j) row[j] *= inverse;
      std::fill(row + seen, row + keys_there, 0.0F);
      logsumexp[first + i] = maximum + std::log(sum);
    }
    Product{kTile, head.width, keys_there}({scores.data, scores.stride}, head.values,
                                           mixed.from(first));
  }
}

struct HeadGradients {
  Rows<float> queries, keys, values;
};

struct HeadMixed {
  Rows<const float> gradient, values;
  const float* logsumexp;
};

void back_through_head(const Head& head, const HeadMixed& mixed, const HeadGradients& by,
                       Workspace& work) {
  const int64_t width = head.width;
  const Rows<float> keys{work.columns.data(), head.context};
  const Rows<float> weights = Workspace::tiled(work.scores), d = Workspace::tiled(work.gradients);
  const Rows<float> queries = Workspace::tiled(work.tile),
                    dmixed = Workspace::tiled(work.other_tile);
  vector_transpose(head.keys, head.context, width, keys);
  // From the end: the last tile sees all keys and writes anew what the others add to.
  for (int64_t first = head.context - kTile; first >= 0; first -= kTile) {
    const int64_t seen = first + kTile;
    const Write write = seen == head.context ? Write::kAnew : Write::kAdded;
    const Rows<const float> query_rows = head.queries.from(first),
                            gradient_rows = mixed.gradient.from(first);
    vector_transpose(query_rows, kTile, width, queries);
    vector_transpose(gradient_rows, kTile, width, dmixed);
    Product{seen, kTile, width}(head.keys, {queries.data, kTile}, weights);
    Product{seen, kTile, width}(head.values, {dmixed.data, kTile}, d);
    std::array<float, kTile> means;  // of the gradients by weights, by these
    for (int64_t i = 0; i < kTile; ++i)
      means[static_cast<size_t>(i)] =
          vector_dot(gradient_rows.row(i), mixed.values.row(first + i), width);
    softmax_columns_backward({weights.data, d.data, seen, head.scale}, mixed.logsumexp + first,
                             means.data());
    Product{seen, width, kTile}({weights.data, kTile}, gradient_rows, by.values, write);
    Product{seen, width, kTile}({d.data, kTile}, query_rows, by.keys, write);
    Product{width, kTile, seen}({keys.data, keys.stride}, {d.data, kTile}, queries);
    vector_transpose({queries.data, kTile}, width, kTile, by.queries.from(first));
  }
}

}  // namespace

bool TiledAttention::suits(const Tensor& qkv, int64_t rows, int64_t heads) {
  const int64_t context = qkv.size(0) / rows, head = qkv.size(1) / 3 / heads;
  return qkv.is_cpu() && qkv.scalar_type() == at::kFloat && qkv.is_contiguous() && context > 0 &&
         context % kTile == 0 && context <= kLongest && head % 16 == 0 && head <= kWidestHead &&
         has_products();
}

Mixed TiledAttention::forward(const Tensor& qkv, int64_t rows, int64_t heads) {
  const Shape s(qkv, rows, heads);
  Mixed mixed{at::empty({qkv.size(0), s.width}, qkv.options()),
              at::empty({rows, heads, s.context}, qkv.options())};
  const float* const in = qkv.const_data_ptr<float>();
  float *const out = mixed.values.data_ptr<float>(), *const logsumexp =
                                                         mixed.logsumexp.data_ptr<float>();
  at::parallel_for(0, rows * heads, 1, [&](int64_t begin, int64_t end) {
    Workspace work(s);
    for (int64_t i = begin; i < end; ++i) {
      mix_head(s.head(in, i), {out + s.offset(i, s.width), s.width}, logsumexp + i * s.context,
               work);
    }
  });
  return mixed;
}

Tensor TiledAttention::backward(const Tensor& dmixed, const Tensor& qkv, const Mixed& mixed) {
  const Shape s(qkv, mixed.logsumexp.size(0), mixed.logsumexp.size(1));
  Tensor dqkv = at::empty_like(qkv);
  const float *const in = qkv.const_data_ptr<float>(), *const d = dmixed.const_data_ptr<float>(),
                     *const values = mixed.values.const_data_ptr<float>(),
                     *const logsumexp = mixed.logsumexp.const_data_ptr<float>();
  float* const out = dqkv.data_ptr<float>();
  at::parallel_for(0, s.rows * s.heads, 1, [&](int64_t begin, int64_t end) {
    Workspace work(s);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t offset = s.offset(i, s.width);
      float* const start = out + s.offset(i, 3 * s.width);
      back_through_head(
          s.head(in, i),
          {{d + offset, s.width}, {values + offset, s.width}, logsumexp + i * s.context},
          {{start, 3 * s.width},
           {start + s.width, 3 * s.width},
           {start + 2 * s.width, 3 * s.width}},
          work);
    }
  });
  return dqkv;
}

}  // namespace ballast::kernels
