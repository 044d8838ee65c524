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
