// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "ballast/loading/loaded_model.h"
#include "ballast/tokens/token_source.h"

namespace ballast::training {

// Whether the model's data is the built-in corpus, and what the run prepared of it is not beside
// the model (a run, a checkpoint of it, or an export).
bool lacks_builtin_data(const std::filesystem::path& model, const loading::LoadedModel& loaded);

// What the model was validated on when it was trained. The built-in corpus, where it is lacking, is
// prepared in `scratch`. UserError: there is none, it is not there, or it is not what it was.
std::shared_ptr<tokens::TokenSource> open_validation_data(const std::filesystem::path& model,
                                                          const loading::LoadedModel& loaded,
                                                          const std::filesystem::path& scratch);

}  // namespace ballast::training
