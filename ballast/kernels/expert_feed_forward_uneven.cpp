// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "ballast/kernels/expert_feed_forward_paths.h"
#include "ballast/kernels/expert_products.h"
#include "ballast/kernels/find_op.h"

namespace ballast {

using at::Tensor;

// Computed by the CUDA plugin. `way`: a ProductWay; weights, sums: in the order of ExpertStacks.
// The first of what forward gives is the result, the others are kept for backward.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "expert_feed_forward_uneven(Tensor x, int way, Tensor? ends, int[] counts, "
      "Tensor[] weights) -> Tensor[]");
  library.def(
      "expert_feed_forward_uneven_backward(Tensor dy, Tensor x, int way, int[] counts, "
      "Tensor[] weights, Tensor[] kept, Tensor?[] sums) -> Tensor");
}

namespace {

// Rows and matrices are read in units of 16 bytes.
bool is_aligned(const Tensor& stack) {
  constexpr int64_t kUnit = 16;
  return reinterpret_cast<uintptr_t>(stack.const_data_ptr()) % kUnit == 0 &&
         stack.stride(0) * stack.element_size() % kUnit == 0 &&
         stack.size(-1) * stack.element_size() % kUnit == 0;
}

// Runs of experts with equally many rows each.
size_t count_groups(const ExpertRows& rows, int64_t num_rows) {
  return expert_groups(rows.counts, num_rows).size();
}

std::vector<Tensor> listed(const ExpertStacks& stacks) {
  return {stacks.norm, stacks.norm_bias, stacks.up, stacks.up_bias, stacks.down, stacks.down_bias};
}

int64_t way_of(const std::vector<int64_t>& counts, const Tensor& up) {
  return static_cast<int64_t>(choose_product_way(counts, up.size(1) * up.size(2)));
}

}  // namespace

bool suits_uneven(const Tensor& x, const ExpertRows& rows, const ExpertStacks& weights) {
  if (!x.is_cuda() || x.scalar_type() != at::kBFloat16 || x.size(0) == 0) return false;
  if (!rows.counts.empty() && count_groups(rows, x.size(0)) == 1) return false;
  for (const Tensor& stack : listed(weights)) {
    if (!is_aligned(stack)) return false;
  }
  return is_aligned(x);
}

Tensor expert_feed_forward_uneven(const Tensor& x, const ExpertRows& rows,
                                  const ExpertStacks& weights, KeptForBackward& kept) {
  static const auto op = find_op<std::vector<Tensor>(
      const Tensor&, int64_t, const std::optional<Tensor>&, at::IntArrayRef, at::TensorList)>(
      "ballast::expert_feed_forward_uneven");
  const auto ends = rows.ends.defined() ? std::optional(rows.ends) : std::nullopt;
  kept.tensors = op.call(x, way_of(rows.counts, weights.up), ends, rows.counts, listed(weights));
  const Tensor y = kept.tensors.front();
  kept.tensors.erase(kept.tensors.begin());
  return y;
}

Tensor expert_feed_forward_backward_uneven(const Tensor& dy, const Tensor& x,
                                           const std::vector<int64_t>& counts,
                                           const ExpertStacks& weights, const ExpertStacks& sums,
                                           const KeptForBackward& kept) {
  static const auto op =
      find_op<Tensor(const Tensor&, const Tensor&, int64_t, at::IntArrayRef, at::TensorList,
                     at::TensorList, const c10::List<std::optional<Tensor>>&)>(
          "ballast::expert_feed_forward_uneven_backward");
  c10::List<std::optional<Tensor>> wanted;
  for (const Tensor& sum : listed(sums))
    wanted.push_back(sum.defined() ? std::optional(sum) : std::nullopt);
  // Biases have no say; a list of tensors wants all to be there.
  const std::vector<Tensor> all{weights.norm, weights.norm, weights.up,
                                weights.norm, weights.down, weights.norm};
  return op.call(dy, x, way_of(counts, weights.up), counts, all, kept.tensors, wanted);
}

}  // namespace ballast
