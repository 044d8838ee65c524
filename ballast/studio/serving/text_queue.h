// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// The texts of one model: those that its writer writes, and those that wait for their turn.
class TextQueue {
 public:
  TextQueue(const loading::LoadedModel& model, experts::RoutingMode routing, int64_t rows);

  void add(std::vector<ServedText> texts, const ServedModels::Failure& failed);
  // A token of each. Where that throws, all who wait for texts are told.
  void step();
  bool is_empty() const { return waiting_.empty() && written_.empty(); }
  TextCounts counts() const;

 private:
  using Told = std::shared_ptr<const ServedModels::Failure>;  // of the texts that came together
  struct Waiting {
    ServedText text;
    Told failed;
  };
  void begin_texts();
  void fail_all(const std::exception& error);

  const loading::LoadedModel& model_;
  experts::RoutingMode routing_;
  int64_t rows_;
  std::unique_ptr<inference::Writer> writer_;  // none before the first text
  std::deque<Waiting> waiting_;
  std::map<uint64_t, Told> written_;
  uint64_t number_ = 0;
};

}  // namespace ballast::serving
