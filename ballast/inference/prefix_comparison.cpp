// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/prefix_comparison.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace ballast::inference {
namespace {

double unit_roundoff(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0x1p-53;
    case at::kBFloat16:
      return 0x1p-9;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

std::span<const float> row_of(const at::Tensor& scores, int64_t row) {
  const auto experts = static_cast<size_t>(scores.size(1));
  return {scores.const_data_ptr<float>() + static_cast<size_t>(row) * experts, experts};
}

double largest(std::span<const float> values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

// Root of the mean square. A token whose own scores happen to be small rounds like the others.
double usual_size(const at::Tensor& scores) {
  return std::sqrt(scores.square().mean(at::kDouble).item<double>());
}

}  // namespace

double rounding_bound(at::ScalarType working, int64_t width, int64_t depth) {
  const double sums = std::min(unit_roundoff(working), unit_roundoff(at::kFloat));
  return 16 * std::sqrt(static_cast<double>(std::max<int64_t>(1, depth))) *
         (unit_roundoff(working) + std::sqrt(static_cast<double>(width)) * sums);
}

void ComparisonCounts::add(const ComparisonCounts& other) {
  routes += other.routes;
  ties += other.ties;
  changed_routes += other.changed_routes;
  logits += other.logits;
  changed_logits += other.changed_logits;
  left_out += other.left_out;
  logit_difference = std::max(logit_difference, other.logit_difference);
}

PrefixComparison::PrefixComparison(const ComparisonBounds& bounds, std::vector<uint64_t> windows,
                                   std::vector<int64_t> lengths)
    : bounds_(bounds),
      windows_(std::move(windows)),
      lengths_(std::move(lengths)),
      untouched_(lengths_) {}

void PrefixComparison::add_routes(const experts::SeenRoute& before, const experts::SeenRoute& after,
                                  double offset) {
  const auto rows = static_cast<int64_t>(lengths_.size());
  const int64_t context = before.expert_of_token.size(0) / rows;
  const double usual = usual_size(before.scores) + offset;
  next_untouched_ = untouched_;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t position = 0; position < untouched(row); ++position) {
      const int64_t token = row * context + position;
      const double size = std::max(usual, offset + std::max(largest(row_of(before.scores, token)),
                                                            largest(row_of(after.scores, token))));
      ++counts_.routes;
      judge({row, position}, before, after, size);
    }
  }
  untouched_ = next_untouched_;
  counts_.left_out = std::reduce(lengths_.begin(), lengths_.end(), int64_t{0}) -
                     std::reduce(untouched_.begin(), untouched_.end(), int64_t{0});
}

void PrefixComparison::judge(const Place& place, const experts::SeenRoute& before,
                             const experts::SeenRoute& after, double size) {
  const int64_t context = before.expert_of_token.size(0) / static_cast<int64_t>(lengths_.size());
  const int64_t token = place.row * context + place.position;
  const auto a = before.expert_of_token.const_data_ptr<int64_t>()[token],
             b = after.expert_of_token.const_data_ptr<int64_t>()[token];
  if (a == b) return;
  const auto first = row_of(before.scores, token), second = row_of(after.scores, token);
  double apart = 0;  // the passes, in this token's scores
  for (size_t expert = 0; expert < first.size(); ++expert)
    apart = std::max(apart, std::abs(static_cast<double>(first[expert]) - second[expert]));
  const auto gap = [&](std::span<const float> scores) {
    return std::abs(static_cast<double>(scores[static_cast<size_t>(a)]) -
                    scores[static_cast<size_t>(b)]);
  };
  const double gaps = std::max(gap(first), gap(second));
  const double explained = 2 * std::min(apart, bounds_.scores * size);
  if (gaps <= explained) {
    ++counts_.ties;
    int64_t& next = next_untouched_[static_cast<size_t>(place.row)];
    next = std::min(next, place.position);
    return;
  }
  ++counts_.changed_routes;
  tell(place, fmt::format("goes to expert {} of layer {}, and to expert {} once tokens after the "
                          "prefix change. The two experts' scores are {:.3g} apart, where rounding "
                          "explains {:.1g}",
                          a, before.layer, b, gaps, explained));
}

void PrefixComparison::add_logits(int64_t row, int64_t first, const at::Tensor& before,
                                  const at::Tensor& after) {
  const at::ScalarType dtype = before.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor a = before.to(dtype), b = after.to(dtype);  // [n, V]
  const at::Tensor size = at::maximum(a.abs().amax(1), b.abs().amax(1));
  // Not a number, in either pass, is no agreement; equal logits are, also where all are 0.
  const at::Tensor apart = (a - b).abs().amax(1);
  const at::Tensor share =
      (apart / size).masked_fill_(apart.eq(0), 0).to(at::kCPU, at::kDouble).contiguous();
  for (int64_t i = 0; i < share.size(0); ++i) {
    const double difference = share.const_data_ptr<double>()[i];
    ++counts_.logits;
    counts_.logit_difference =
        std::max(counts_.logit_difference,
                 std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
    if (difference <= bounds_.logits) continue;
    ++counts_.changed_logits;
    tell({row, first + i}, fmt::format("has logits that change by {:.2g} of their size once tokens "
                                       "after the prefix change, where rounding explains {:.1g}",
                                       difference, bounds_.logits));
  }
}

void PrefixComparison::tell(const Place& place, const std::string& what) {
  if (!first_leak_.empty()) return;
  const auto row = static_cast<size_t>(place.row);
  first_leak_ = fmt::format("window {}, prefix of {} tokens: token {} {}", windows_.at(row),
                            lengths_[row], place.position, what);
}

}  // namespace ballast::inference
