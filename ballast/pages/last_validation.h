// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ballast {

// What validation.json tells (docs/file_formats.md). Numbers that are not there are NaN.

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct TokenUse {
  std::string text;
  double count = 0, lift = kUnknown;
};

struct ExpertTokens {
  int64_t expert = 0;
  std::vector<TokenUse> tokens, previous;  // those it got most often; those before them
};

struct LayerUse {
  int64_t layer = 0;
  std::string name;                               // "BASE layer 2"
  std::vector<double> loads, second_loads;        // tokens of each expert
  std::vector<std::vector<double>> domain_loads;  // [experts][domains]; may be empty
  double domain_bits = kUnknown, token_bits = kUnknown, previous_bits = kUnknown;
  std::vector<ExpertTokens> experts;
};

struct DomainResult {
  std::string name;
  double tokens = 0, loss = kUnknown;
};

struct RoutingUse {
  std::string routing;  // greedy, priced, balanced; empty: a dense model
  double loss = kUnknown, bits_per_byte = kUnknown;
  std::vector<DomainResult> domains;
  std::vector<LayerUse> layers;
};

struct LastValidation {
  int64_t step = 0;
  double tokens = kUnknown, floor = kUnknown;
  bool whole_split = false;
  std::vector<RoutingUse> routings;

  // Null where it was not measured.
  const RoutingUse* find(const std::string& routing) const;
  // What a language model does: greedy routing, or all there is of a dense model; null if neither.
  const RoutingUse* main() const;
};

// Throws UserError that names the file if it is no such file, or of a later version.
LastValidation read_validation(const std::filesystem::path& path);

// What metrics.jsonl says of a validation, for runs without validation.json: losses and loads.
// `routing`: that of its `valid_loss`; empty: a dense model.
LastValidation validation_of_metrics(const nlohmann::json& record, const std::string& routing);

}  // namespace ballast
