// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/loading/loaded_model.h"
#include "ballast/system/file.h"
#include "ballast/tokens/token_source.h"

namespace ballast::cli {

struct DataChoice {
  std::string model;              // as the user named it
  std::vector<std::string> data;  // text, prepared data or token files; empty: the run's own
  std::string split = "valid";    // of prepared data
};

// What a model is evaluated on. Text becomes tokens on disk, so that its size does not matter:
// worker 0 prepares them in a temporary folder, and all read them there.
class EvalData {
 public:
  // Collective. SharedError (a UserError): what is missing or does not fit the model.
  EvalData(const DataChoice& choice, const loading::LoadedModel& loaded,
           comm::Communicator& workers);

  const std::shared_ptr<tokens::TokenSource>& source() const { return source_; }

 private:
  std::optional<TemporaryFolder> scratch_;  // worker 0's
  std::shared_ptr<tokens::TokenSource> source_;
};

}  // namespace ballast::cli
