// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/validation_data.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/tokens/token_dataset.h"
#include "ballast/training/training_data.h"

namespace ballast::training {
namespace {

// Where a run prepares the built-in corpus for itself; empty: it is not there, as beside an export.
std::filesystem::path builtin_data_of(const std::filesystem::path& model) {
  const std::filesystem::path folder = loading::tokenizer_folder_of(model).parent_path() / "data";
  return tokens::TokenDataset::is_dataset(folder) ? folder : std::filesystem::path();
}

// What is called the run's own data is what it was validated on.
void check_same(const std::vector<checkpoint::DataEntry>& trained_on,
                const std::vector<checkpoint::DataEntry>& now) {
  const auto before = std::ranges::find(trained_on, "valid", &checkpoint::DataEntry::role);
  const auto found = std::ranges::find(now, "valid", &checkpoint::DataEntry::role);
  if (before == trained_on.end() || found == now.end()) return;
  if (before->fingerprint != found->fingerprint) {
    fail(
        "the run's validation data is not what it was: {} ({}) is now {} ({}). Put that back, or "
        "name what to evaluate on with `ballast eval --data`",
        before->name, before->fingerprint, found->name, found->fingerprint);
  }
}

}  // namespace

bool lacks_builtin_data(const std::filesystem::path& model, const loading::LoadedModel& loaded) {
  const auto is_builtin = [](const std::string& name) { return name.starts_with("builtin"); };
  const config::DataConfig& data = loaded.config.data;
  return builtin_data_of(model).empty() && (std::ranges::any_of(data.train, is_builtin) ||
                                            std::ranges::any_of(data.valid, is_builtin));
}

std::shared_ptr<tokens::TokenSource> open_validation_data(const std::filesystem::path& model,
                                                          const loading::LoadedModel& loaded,
                                                          const std::filesystem::path& scratch) {
  const std::filesystem::path of_run = builtin_data_of(model);
  TrainingData data =
      open_training_data(loaded.config.data, of_run.empty() ? scratch / "data" : of_run);
  if (data.valid == nullptr)
    fail("the run has no validation data of its own: name some with `ballast eval --data`");
  check_same(loaded.data, data.identity);
  if (loaded.tokenizer != nullptr) tokens::require_same_tokenizer(*data.valid, *loaded.tokenizer);
  data.valid->limit_vocabulary(static_cast<uint64_t>(loaded.config.model.vocabulary));
  return data.valid;
}

}  // namespace ballast::training
