// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "ballast/inference/expert_sample.h"
#include "ballast/studio/serving/served_models.h"

namespace ballast::serving {

// The beginnings of a few documents, spread evenly over the run's validation data: a text that its
// model may know. UserError: the data is not there, or its tokens cannot be read.
std::string text_of_validation(const ServedRun& run, const loading::LoadedModel& loaded);

// What experts got of a run's validation data, by (run, step). The first who asks begins the
// reading, which goes on window by window between other work; the last few results are kept.
// Everything happens on the models' thread. `models` outlives it.
class ValidationSamples : public std::enable_shared_from_this<ValidationSamples> {
 public:
  explicit ValidationSamples(ServedModels& models) : models_(models) {}

  struct Entry {
    ModelOrder order;
    uint64_t step = 0;                                     // that the model was trained for
    std::shared_ptr<inference::ExpertSample> sample = {};  // null: there is none
    std::string trouble = {};                              // why it is not there, or not whole
    uint64_t last_use = 0;
  };
  const Entry& of(const ModelOrder& order, const loading::LoadedModel& loaded);

 private:
  void begin(Entry& entry, const loading::LoadedModel& loaded);
  void post_next(const ModelOrder& order, uint64_t step);
  Entry* find(const ModelOrder& order, uint64_t step);

  ServedModels& models_;
  std::list<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace ballast::serving
