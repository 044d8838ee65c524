// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace ballast::config {

// Values of knobs that are one of a few. names_of: what they are called in TOML, flags and records,
// in the order of the values.

// The parts of a decoder.
enum class Positions { kLearned, kRope };
constexpr std::array<std::string_view, 2> names_of(Positions) { return {"learned", "rope"}; }

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };
constexpr std::array<std::string_view, 4> names_of(RopeScaling) {
  return {"none", "linear", "llama3", "yarn"};
}

enum class NormKind { kLayer, kRms };
constexpr std::array<std::string_view, 2> names_of(NormKind) { return {"layer", "rms"}; }

enum class Activation { kRelu, kGelu, kGeluTanh, kRelu2, kSwiglu };
constexpr std::array<std::string_view, 5> names_of(Activation) {
  return {"relu", "gelu", "gelu_tanh", "relu2", "swiglu"};
}

enum class QueryKeyNorm { kNone, kHead, kWidth };
constexpr std::array<std::string_view, 3> names_of(QueryKeyNorm) {
  return {"none", "head", "width"};
}

enum class Biases { kAll, kQkv, kNone };
constexpr std::array<std::string_view, 3> names_of(Biases) { return {"all", "qkv", "none"}; }

enum class Placement { kSpread, kTop, kReplace };
constexpr std::array<std::string_view, 3> names_of(Placement) {
  return {"spread", "top", "replace"};
}

enum class ExpertSize { kSmall, kStandard, kLarge };
constexpr std::array<std::string_view, 3> names_of(ExpertSize) {
  return {"small", "standard", "large"};
}

enum class TrainingSolver { kExact, kAuction, kSinkhorn };
constexpr std::array<std::string_view, 3> names_of(TrainingSolver) {
  return {"exact", "auction", "sinkhorn"};
}

// Whether each expert norms its tokens for itself, or the layer does it once for all and the
// router.
enum class ExpertNorm { kOwn, kLayer };
constexpr std::array<std::string_view, 2> names_of(ExpertNorm) { return {"own", "layer"}; }

// What a router reads of tokens, how affinities become weights, and what is compared.
enum class Features { kNormed, kRaw };
constexpr std::array<std::string_view, 2> names_of(Features) { return {"normed", "raw"}; }

enum class Gate { kSoftmax, kSigmoid };
constexpr std::array<std::string_view, 2> names_of(Gate) { return {"softmax", "sigmoid"}; }

enum class Scores { kCosine, kDot };
constexpr std::array<std::string_view, 2> names_of(Scores) { return {"cosine", "dot"}; }

enum class TestRouting { kAuto, kGreedy, kPriced };
constexpr std::array<std::string_view, 3> names_of(TestRouting) {
  return {"auto", "greedy", "priced"};
}

enum class SecondExpert { kAlways, kRandom };
constexpr std::array<std::string_view, 2> names_of(SecondExpert) { return {"always", "random"}; }

enum class Algorithm { kAdam, kMuon };
constexpr std::array<std::string_view, 2> names_of(Algorithm) { return {"adam", "muon"}; }

enum class Schedule { kLinear, kCosine, kStable };
constexpr std::array<std::string_view, 3> names_of(Schedule) {
  return {"linear", "cosine", "stable"};
}

enum class ClipOver { kShared, kAll };
constexpr std::array<std::string_view, 2> names_of(ClipOver) { return {"shared", "all"}; }

enum class DeviceChoice { kAuto, kCpu, kCuda };
constexpr std::array<std::string_view, 3> names_of(DeviceChoice) { return {"auto", "cpu", "cuda"}; }

enum class Precision { kAuto, kFp32, kBf16, kFp64 };
constexpr std::array<std::string_view, 4> names_of(Precision) {
  return {"auto", "fp32", "bf16", "fp64"};
}

enum class Recompute { kNone, kBlocks };
constexpr std::array<std::string_view, 2> names_of(Recompute) { return {"none", "blocks"}; }

template <typename Enum>
requires std::is_enum_v<Enum> std::string name_of(Enum value) {
  return std::string(names_of(value).at(static_cast<size_t>(value)));
}

// REQUIRES: it has such a name.
template <typename Enum>
Enum choice_of(std::string_view name) {
  const auto names = names_of(Enum());
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw std::invalid_argument("no choice " + std::string(name));
  return static_cast<Enum>(found - names.begin());
}

}  // namespace ballast::config
