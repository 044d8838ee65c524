// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/core_newton.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/plain_math.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

// share[k] = exp(-deficit / temperature), not yet divided by its group's sum. `share` has room for
// a whole number of vectors.
BALLAST_VECTOR_CLONES
void raw_shares(const int32_t* __restrict expert, const Units* __restrict deficit,
                const float* __restrict moved, float per_unit, int64_t pairs,
                float* __restrict share) {
  for (int64_t k = 0; k < pairs; ++k) share[k] = static_cast<float>(deficit[k]) + moved[expert[k]];
  for (int64_t k = 0; k < pairs; k += kLanes) {
    store_lanes(exp2_of(load_lanes(share + k) * -per_unit), share + k);
  }
}

// y = A x for a symmetric A; returns x . y.
BALLAST_VECTOR_CLONES
float multiply(const float* matrix, const float* x, float* y, int64_t experts, int64_t padded) {
  float dot = 0;
  for (int64_t row = 0; row < experts; ++row) {
    Floats sum = {};
    for (int64_t i = 0; i < padded; i += kLanes) {
      sum += load_lanes(matrix + row * padded + i) * load_lanes(x + i);
    }
    y[row] = sum_of(sum);
    dot += x[row] * y[row];
  }
  return dot;
}

// To four digits.
BALLAST_INLINE HalfLanes quick_log2(HalfLanes x) {
  using Ints = int32_t __attribute__((vector_size(sizeof(HalfLanes))));
  Ints bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const HalfLanes exponent = __builtin_convertvector((bits >> 23) - 127, HalfLanes);
  bits = (bits & 0x7fffff) | 0x3f800000;
  HalfLanes f;  // 1 .. 2
  std::memcpy(&f, &bits, sizeof(f));
  f = f - 1;
  HalfLanes y = f * 0.04587075F - 0.19439043F;
  y = y * f + 0.41539777F;
  y = y * f - 0.70867494F;
  y = y * f + 1.44182512F;
  return exponent + y * f;
}

// Sum of size * log2(sum). Both have room for a whole number of vectors, with sizes of 0 there.
BALLAST_VECTOR_CLONES
double sum_of_logs(const float* sum, const float* size, int64_t groups) {
  double total = 0;
  for (int64_t g = 0; g < groups; g += kLanes) {
    const Floats x = load_lanes(sum + g);
    const Floats logs = {quick_log2(x.low), quick_log2(x.high)};
    total += static_cast<double>(sum_of(logs * load_lanes(size + g)));
  }
  return total;
}

// A share and its expert as one number: the larger share is the larger number.
uint64_t ranked(float share, int32_t expert) {
  return uint64_t{std::bit_cast<uint32_t>(share)} << 32 | static_cast<uint32_t>(expert);
}

}  // namespace

void CoreNewton::reserve(int64_t tokens, int64_t pairs) {
  share_.reserve(pairs);
  sum_.reserve(tokens + kLanes);
  size_.reserve(tokens + kLanes);
}

double CoreNewton::share_out(const Core& core, float temperature) {
  constexpr float kBitsPerNat = 1.44269504F;
  constexpr int32_t kFewCandidates = 8;
  const int32_t* const expert = core.expert.data();
  float* const share = share_.data();
  raw_shares(expert, core.deficit.data(), moved_.data(), kBitsPerNat / temperature, core.pairs(),
             share);
  sum_.resize(core.groups() + kLanes);
  size_.resize(core.groups() + kLanes);
  std::fill_n(sum_.begin() + core.groups(), kLanes, 1.0F);
  std::fill_n(size_.begin() + core.groups(), kLanes, 0.0F);
  for (int32_t g = 0; g < core.groups(); ++g) {
    const int32_t begin = core.begin[g];
    const int32_t end = core.begin[g + 1];
    float sum = 1e-30F;
    uint64_t best = 0;
    for (int32_t k = begin; k < end; ++k) {
      sum += share[k];
      best = std::max(best, ranked(share[k], expert[k]));
    }
    whole_[static_cast<uint32_t>(best)] += core.size[g];
    const auto size = static_cast<float>(core.size[g]);
    const float normal = size / sum;
    sum_[g] = sum;
    size_[g] = size;
    for (int32_t k = begin; k < end; ++k) {
      share[k] *= normal;
      load_[expert[k]] += share[k];
    }
    // A group that is nearly all with one expert has no curvature to speak of.
    const auto most = std::bit_cast<float>(static_cast<uint32_t>(best >> 32));
    if (end - begin <= kFewCandidates) {
      add_all_curvature(core, g);
    } else if (most < 0.99F * sum) {
      add_curvature(core, g);
    }
  }
  return sum_of_logs(sum_.data(), size_.data(), core.groups()) / kBitsPerNat * temperature;
}

void CoreNewton::add_curvature(const Core& core, int32_t group) {
  constexpr int32_t kFew = 8;
  constexpr int32_t kMost = 64;
  constexpr int32_t kEvery = 4;
  const auto size = static_cast<float>(core.size[group]);
  int32_t expert[kMost + 1];
  float share[kMost + 1];
  int32_t strong = 0;
  for (int32_t k = core.begin[group]; k < core.begin[group + 1]; ++k) {
    const float s = share_[k];
    diagonal_[core.expert[k]] += s * (1.0F - s / size);
    expert[strong] = core.expert[k];
    share[strong] = s;
    strong += (s > 0.01F * size && strong < kMost) ? 1 : 0;
  }
  // Pairs of many strong candidates are many: then every fourth such token stands for four.
  const bool many = strong > kFew && core.size[group] == 1;
  if (many && group % kEvery != 0) return;
  const float weight = (many ? kEvery : 1) / size;
  for (int32_t i = 0; i + 1 < strong; ++i) {
    float* row = &hessian_[expert[i] * padded_];  // the half above the diagonal
    const float p = share[i] * weight;
    for (int32_t j = i + 1; j < strong; ++j) row[expert[j]] -= p * share[j];
  }
}

// The same with all pairs of few candidates: quicker than finding out which of them matter.
void CoreNewton::add_all_curvature(const Core& core, int32_t group) {
  const int32_t begin = core.begin[group];
  const int32_t end = core.begin[group + 1];
  const float weight = 1.0F / static_cast<float>(core.size[group]);
  for (int32_t k = begin; k < end; ++k) {
    const float s = share_[k];
    diagonal_[core.expert[k]] += s * (1.0F - s * weight);
    float* row = &hessian_[core.expert[k] * padded_];
    for (int32_t l = k + 1; l < end; ++l) row[core.expert[l]] -= s * weight * share_[l];
  }
}

SoftLoads CoreNewton::measure(const Core& core, const SoftTargets& targets,
                              const std::vector<Units>& prices, float temperature) {
  const auto experts = static_cast<int64_t>(prices.size());
  padded_ = (experts + kLanes - 1) / kLanes * kLanes;
  temperature_ = temperature;
  moved_.resize(experts);
  for (int64_t e = 0; e < experts; ++e) {
    moved_[e] = static_cast<float>(prices[e] - core.prices[e]);
  }
  if (static_cast<int64_t>(share_.size()) < core.pairs() + kLanes)
    share_.resize(core.pairs() + kLanes);
  has_shares_ = true;
  load_.assign(core.settled.begin(), core.settled.end());
  whole_.assign(core.settled.begin(), core.settled.end());
  free_load_.assign(core.settled.size(), 0.0);
  hessian_.assign(experts * padded_, 0.0F);
  diagonal_.assign(experts, 0.0F);
  double dual = core.best_profits + share_out(core, temperature);
  for (int64_t e = 0; e < experts; ++e) hessian_[e * (padded_ + 1)] = diagonal_[e];
  for (int64_t e = 0; e < experts; ++e) {
    dual += targets.places[e] * static_cast<double>(prices[e]) - core.settled[e] * moved_[e];
  }
  if (targets.free > 0) share_out_free(targets, prices);
  complete_hessian();
  SoftLoads loads = compare(targets);
  loads.dual = dual;
  return loads;
}

SoftLoads CoreNewton::compare(const SoftTargets& targets) {
  const auto experts = static_cast<int64_t>(load_.size());
  SoftLoads loads;
  excess_.assign(padded_, 0.0F);
  for (int64_t e = 0; e < experts; ++e) {
    const double excess = load_[e] - targets.places[e];
    excess_[e] = static_cast<float>(excess);
    loads.imbalance += std::max(0.0, excess);
  }
  return loads;
}

// The half below the diagonal.
void CoreNewton::complete_hessian() {
  const auto experts = static_cast<int64_t>(load_.size());
  constexpr int64_t kTile = 16;  // by tiles: columns lie far apart in memory
  for (int64_t top = 0; top < experts; top += kTile) {
    for (int64_t left = top; left < experts; left += kTile) {
      for (int64_t a = top; a < std::min(top + kTile, experts); ++a) {
        for (int64_t b = std::max(left, a + 1); b < std::min(left + kTile, experts); ++b) {
          hessian_[b * padded_ + a] = hessian_[a * padded_ + b];
        }
      }
    }
  }
}

SoftLoads CoreNewton::measure_whole(std::span<const double> loads, const SoftTargets& targets,
                                    float times) {
  load_.assign(loads.begin(), loads.end());
  has_shares_ = false;
  for (float& entry : hessian_) entry *= times;
  return compare(targets);
}

SoftLoads CoreNewton::measure_whole(const Core& core, const SoftTargets& targets, float times) {
  best_load_.assign(core.settled.begin(), core.settled.end());
  for (int32_t g = 0; g < core.groups(); ++g) {
    int32_t best = 0;
    for (int32_t k = core.begin[g]; k < core.begin[g + 1]; ++k) {
      best = std::max(best, core.expert[k] & -static_cast<int32_t>(core.deficit[k] == 0));
    }
    best_load_[best] += core.size[g];
  }
  return measure_whole(best_load_, targets, times);
}

SoftLoads CoreNewton::adopt(const WholeShares& shares, const SoftTargets& targets,
                            const std::vector<Units>& prices, float temperature) {
  const auto experts = static_cast<int64_t>(prices.size());
  padded_ = (experts + kLanes - 1) / kLanes * kLanes;
  temperature_ = temperature;
  has_shares_ = false;
  load_.assign(shares.loads().begin(), shares.loads().end());
  free_load_.assign(load_.size(), 0.0);
  hessian_ = shares.curvature();
  complete_hessian();
  if (targets.free > 0) share_out_free(targets, prices);
  return compare(targets);
}

int64_t CoreNewton::whole_imbalance(const WholeShares& shares, const SoftTargets& targets) const {
  int64_t imbalance = 0;
  for (size_t e = 0; e < load_.size(); ++e) {
    const double load = static_cast<double>(shares.best()[e]) + free_load_[e];
    imbalance += std::max<int64_t>(0, std::llrint(load) - std::llrint(targets.places[e]));
  }
  return imbalance;
}

int64_t CoreNewton::whole_imbalance(const SoftTargets& targets) const {
  int64_t imbalance = 0;
  for (size_t e = 0; e < whole_.size(); ++e) {
    const double load = has_shares_ ? static_cast<double>(whole_[e]) + free_load_[e] : load_[e];
    imbalance += std::max<int64_t>(0, std::llrint(load) - std::llrint(targets.places[e]));
  }
  return imbalance;
}

std::span<const int32_t> CoreNewton::idle_experts(const SoftTargets& targets) {
  idle_.clear();
  for (size_t e = 0; e < load_.size(); ++e) {
    if (targets.places[e] >= 2 && load_[e] < 0.1 * targets.places[e]) {
      idle_.push_back(static_cast<int32_t>(e));
    }
  }
  return idle_;
}

std::span<const int32_t> CoreNewton::crowded_experts(const SoftTargets& targets, double chance) {
  constexpr size_t kFew = 4;
  const double usual = 1 + std::max(0.25, 3.5 * chance);
  const auto fullness = [&](int32_t e) { return load_[e] / targets.places[e]; };
  crowded_.clear();
  crowded_.reserve(load_.size());
  for (size_t e = 0; e < load_.size(); ++e) {
    const auto expert = static_cast<int32_t>(e);
    const double places = targets.places[e];
    if (places >= 8 && fullness(expert) > usual) crowded_.push_back(expert);
  }
  const size_t few = std::min(kFew, crowded_.size());
  std::partial_sort(crowded_.begin(), crowded_.begin() + static_cast<int64_t>(few), crowded_.end(),
                    [&](int32_t a, int32_t b) { return fullness(a) > fullness(b); });
  return std::span(crowded_).first(few);
}

// Free tokens at expert e: limit / (1 + exp((price - level) / temperature)), at the level where
// they add up. The curvature between experts is left out: it is of rank one and small.
void CoreNewton::share_out_free(const SoftTargets& targets, const std::vector<Units>& prices) {
  const size_t experts = prices.size();
  const auto at = [&](double level, size_t e) {
    const double x =
        std::clamp((static_cast<double>(prices[e]) - level) / temperature_, -40.0, 40.0);
    return targets.limit[e] / (1 + plain_exp(x));
  };
  const auto [lowest, highest] = std::minmax_element(prices.begin(), prices.end());
  double low = static_cast<double>(*lowest) - 50 * temperature_;
  double high = static_cast<double>(*highest) + 50 * temperature_;
  for (int i = 0; i < 60; ++i) {
    const double level = 0.5 * (low + high);
    double sum = 0;
    for (size_t e = 0; e < experts; ++e) sum += at(level, e);
    (sum < targets.free ? low : high) = level;
  }
  for (size_t e = 0; e < experts; ++e) {
    if (targets.limit[e] == 0) continue;
    const double load = at(high, e);
    load_[e] += load;
    free_load_[e] = load;
    hessian_[static_cast<int64_t>(e) * padded_ + static_cast<int64_t>(e)] +=
        static_cast<float>(load * (1 - load / targets.limit[e]));
  }
}

// Conjugate gradients with diagonal scaling. The Hessian's null space (all prices together) and
// experts without open tokens are kept in check by a small multiple of the identity.
void CoreNewton::solve_for_direction() {
  const auto experts = static_cast<int64_t>(load_.size());
  float trace = 0;
  for (int64_t e = 0; e < experts; ++e) trace += hessian_[e * padded_ + e];
  const float ridge = 1e-4F * trace / static_cast<float>(experts) + 1e-6F;
  direction_.assign(padded_, 0.0F);
  residual_ = excess_;
  search_.assign(padded_, 0.0F);
  image_.assign(padded_, 0.0F);
  scale_.assign(padded_, 0.0F);
  float norm = 0;
  for (int64_t e = 0; e < experts; ++e) {
    hessian_[e * padded_ + e] += ridge;
    scale_[e] = 1.0F / hessian_[e * padded_ + e];
    search_[e] = scale_[e] * residual_[e];
    norm += residual_[e] * search_[e];
  }
  const float enough = 1e-4F * norm;
  constexpr int kMostIterations = 50;
  for (int i = 0; i < kMostIterations && norm > enough; ++i) {
    const float curvature =
        multiply(hessian_.data(), search_.data(), image_.data(), experts, padded_);
    if (!(curvature > 0)) break;
    const float length = norm / curvature;
    float next = 0;
    for (int64_t e = 0; e < experts; ++e) {
      direction_[e] += length * search_[e];
      residual_[e] -= length * image_[e];
      next += residual_[e] * residual_[e] * scale_[e];
    }
    const float keep = next / norm;
    norm = next;
    for (int64_t e = 0; e < experts; ++e) search_[e] = scale_[e] * residual_[e] + keep * search_[e];
  }
}

double CoreNewton::step(std::vector<Units>& prices) {
  solve_for_direction();
  constexpr float kMostTemperatures = 6;
  const auto experts = static_cast<int64_t>(prices.size());
  lengths_.resize(experts);
  for (int64_t e = 0; e < experts; ++e) lengths_[e] = std::fabs(direction_[e]);
  // A few experts that nobody is near want to go very far. They are cut off one by one; the step as
  // a whole is shortened only if more than those go far.
  const auto usual = lengths_.begin() + (experts - 1) * 19 / 20;
  std::nth_element(lengths_.begin(), usual, lengths_.end());
  const float shorter = std::min(1.0F, kMostTemperatures / std::max(*usual, 1e-9F));
  for (int64_t e = 0; e < experts; ++e) {
    const float by = std::clamp(shorter * direction_[e], -kMostTemperatures, kMostTemperatures);
    prices[e] += std::llrint(static_cast<double>(temperature_ * by));
  }
  return *usual;
}

}  // namespace ballast::assignment
