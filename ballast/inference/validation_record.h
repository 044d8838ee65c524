// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/inference/evaluate.h"
#include "ballast/record/validation_file.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::inference {

// One way of routing and what it gave. A dense model has one, whose routing says nothing.
struct RoutedEvaluation {
  experts::RoutingMode routing = experts::RoutingMode::kGreedy;
  const Evaluation& evaluation;
};

// A model that was evaluated.
struct EvaluatedModel {
  static constexpr size_t kTokensOfExpert = 10;  // that are named

  const config::Config& config;
  int64_t step = 0;  // that the model has been trained for
  const batches::EvalWindows& windows;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: tokens are numbers
  // REQUIRES: at least one; all of the same windows. They counted previous tokens, but balanced
  // ones need not.
  std::vector<RoutedEvaluation> routings;
};

// What validation.json holds of it.
record::LastValidation last_validation(const EvaluatedModel& model);

// A domain of less than record::kTokensOfADomain has no loss.
std::vector<record::DomainResult> domain_results(const std::vector<DomainLoss>& domains);

}  // namespace ballast::inference
