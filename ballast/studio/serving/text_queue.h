// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// The texts of one model, and who is told where writing fails.
class TextQueue {
 public:
  TextQueue(const loading::LoadedModel& model, experts::RoutingMode routing, int64_t rows);

  void add(std::vector<inference::Writing> texts, const ServedModels::Failure& failed);
  // A token of each. Where that throws, all who wait for texts are told.
  void step();
  bool is_empty() const { return texts_.empty(); }
  TextCounts counts() const;

 private:
  void fail_all(const std::exception& error);

  const loading::LoadedModel& model_;
  experts::RoutingMode routing_;
  int64_t rows_;
  std::unique_ptr<inference::Writer> writer_;  // none before the first text
  // Of all texts that have not ended; those that came together have one.
  std::map<uint64_t, std::shared_ptr<const ServedModels::Failure>> texts_;
  uint64_t number_ = 0;
};

}  // namespace ballast::serving
