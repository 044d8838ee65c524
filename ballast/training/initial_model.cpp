// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/initial_model.h"

#include "ballast/exchange/import.h"
#include "ballast/loading/loaded_model.h"

namespace ballast::training {

config::Config config_of_source(const fs::path& source, int64_t context) {
  if (exchange::is_hf_folder(source))
    return exchange::read_model(exchange::HfFolder(source), context).config;
  return loading::recorded_config(source);
}

void take_shape(const config::Config& source, config::Config& config) {
  config.model = source.model;
  if (source.experts.layers == 0) return;
  config.experts = source.experts;
  config.experts.groups = 0;  // fixed anew by each run, for its workers
}

InitialWeights::InitialWeights(const fs::path& source, const config::Config& config,
                               const fs::path& folder)
    : path_(source) {
  if (!exchange::is_hf_folder(source)) return;
  imported_ = std::make_unique<TemporaryFolder>(folder);
  path_ = imported_->path() / loading::kExportedWeights;
  const bool shortened = config.model.positions == config::Positions::kRope;
  exchange::write_imported(
      path_, exchange::ImportedModel(source, shortened ? config.model.context : 0), {});
}

}  // namespace ballast::training
