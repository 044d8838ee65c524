// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/inference/audit.h"
#include "ballast/inference/evaluate.h"
#include "ballast/loading/loaded_model.h"

namespace ballast::cli {

// What `ballast eval` found, as it prints it. All refer to what must outlive them.
struct RoutingResult {
  experts::RoutingMode routing = experts::RoutingMode::kGreedy;  // says nothing of a dense model
  inference::Evaluation evaluation;
};
struct EvalReport {
  const loading::LoadedModel& model;
  std::string data;
  int64_t stride = 0;
  std::optional<double> floor;         // entropy floor, nats a token
  std::vector<RoutingResult> results;  // at least one
  size_t main = 0;                     // of results: the one the outer JSON keys tell of
  bool with_experts = false;           // what each expert got
};
std::string to_text(const EvalReport& report);
std::string to_json(const EvalReport& report);

struct RoutingAudit {
  experts::RoutingMode routing = experts::RoutingMode::kGreedy;
  inference::AuditReport audit;
};
struct AuditSummary {
  const loading::LoadedModel& model;
  std::string data;
  std::vector<RoutingAudit> audits;
  bool passed() const;  // all of them
};
std::string to_text(const AuditSummary& summary);
std::string to_json(const AuditSummary& summary);

}  // namespace ballast::cli
