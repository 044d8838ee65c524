// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ballast::record {

// What validation.json holds (docs/file_formats.md): losses by domain and what experts got, for
// reports. Numbers that are not there are NaN.

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Of a domain with fewer tokens than this nothing is said: no loss, no part in what experts tell.
inline constexpr int64_t kTokensOfADomain = 2000;

struct TokenUse {
  std::string text;
  double count = 0, lift = kUnknown;
  int64_t id = 0;
};

struct ExpertTokens {
  int64_t expert = 0;
  std::vector<TokenUse> tokens = {}, previous = {};  // those it got most often; those before them
};

struct LayerUse {
  int64_t layer = 0;
  std::string name = {};                               // "BASE layer 2"
  std::vector<double> loads = {}, second_loads = {};   // tokens of each expert
  std::vector<std::vector<double>> domain_loads = {};  // [experts][domains]; may be empty
  // Of the variance of scores, what lies in their first singular direction.
  double first_direction_share = kUnknown;
  double domain_bits = kUnknown, token_bits = kUnknown, previous_bits = kUnknown;
  std::vector<ExpertTokens> experts = {};
  double busiest_share = kUnknown;  // in metrics.jsonl alone: the largest load, in fair shares
};

struct DomainResult {
  std::string name;
  double tokens = 0, loss = kUnknown;
};

struct RoutingUse {
  std::string routing;  // greedy, priced, balanced; empty: a dense model
  double loss = kUnknown, perplexity = kUnknown, bits_per_byte = kUnknown;
  std::vector<DomainResult> domains = {};
  std::vector<LayerUse> layers = {};
};

struct LastValidation {
  int64_t step = 0;
  // What was read, and all there is.
  double tokens = kUnknown, windows = kUnknown, split_tokens = kUnknown, split_windows = kUnknown;
  double floor = kUnknown;
  bool whole_split = false;
  std::string system = {};  // in words
  std::vector<RoutingUse> routings = {};

  // Null where it was not measured.
  const RoutingUse* find(const std::string& routing) const;
  // Greedy routing; where that was not measured, the first there is. Null: there is none.
  const RoutingUse* main() const;
};

// Replaces the file as a whole; UserError where it cannot be written. Little is kept of balanced
// routing, which sees the future.
void write_validation(const std::filesystem::path& path, const LastValidation& validation);
// Throws UserError that names the file if it is no such file, or of a later version.
LastValidation read_validation(const std::filesystem::path& path);
// Whether that is such a file.
bool is_validation_file(const std::filesystem::path& path);

// [{"name", "tokens", "loss"}], as there and in metrics.jsonl; a loss that is not told is null.
nlohmann::ordered_json domains_json(const std::vector<DomainResult>& domains);

// What a line of metrics.jsonl says of a validation: losses and loads. Of the first routing, that
// of its `valid_loss`, it does not tell the name.
LastValidation validation_of_metrics(const nlohmann::json& record);

}  // namespace ballast::record
