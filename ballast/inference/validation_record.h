// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/inference/evaluate.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast {

// One way of routing and what it gave. A dense model has one, whose routing says nothing.
struct RoutedEvaluation {
  RoutingMode routing = RoutingMode::kGreedy;
  const Evaluation& evaluation;
};

// What validation.json holds of a model (docs/file_formats.md): its losses by domain and what its
// experts got, for reports.
struct ValidationRecord {
  static constexpr size_t kTokensOfExpert = 10;  // that are named

  const Config& config;
  int64_t step = 0;  // that the model has been trained for
  const EvalWindows& windows;
  const Tokenizer* tokenizer = nullptr;  // null: tokens are numbers
  // REQUIRES: at least one; all of the same windows. They counted previous tokens, but balanced
  // ones need not: of those little is kept, since they see the future.
  std::vector<RoutedEvaluation> routings;
};

// Replaces the file as a whole. UserError where it cannot be written.
void write_validation(const std::filesystem::path& path, const ValidationRecord& record);
// Whether that is a file written by it.
bool is_validation_file(const std::filesystem::path& path);

// [{"name", "tokens", "loss"}], as there and in metrics.jsonl; a domain without tokens has the loss
// null.
nlohmann::ordered_json domains_json(const std::vector<DomainLoss>& domains);

}  // namespace ballast
