// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "ballast/config/config.h"
#include "ballast/system/file.h"

namespace ballast::training {

// The configuration of a model to start from: as a run, checkpoint or export recorded it, or as a
// folder of Hugging Face's describes it. No weights are read. `context`: see read_model(); of such
// a folder alone.
config::Config config_of_source(const fs::path& source, int64_t context);

// Gives `config` the model's parts and sizes, and its experts where it has some.
void take_shape(const config::Config& source, config::Config& config);

// What open_together() takes, for any source: a folder of Hugging Face's as a file in `folder`,
// which is deleted with this object; anything else as it is.
class InitialWeights {
 public:
  InitialWeights(const fs::path& source, const config::Config& config, const fs::path& folder);
  const fs::path& path() const { return path_; }

 private:
  std::unique_ptr<TemporaryFolder> imported_;
  fs::path path_;
};

}  // namespace ballast::training
