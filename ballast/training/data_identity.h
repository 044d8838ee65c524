// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ballast/checkpoint/manifest.h"
#include "ballast/training/training_data.h"

namespace ballast::training {

// What differs between the data a run was trained on and the data it has now, in words that name
// both. Empty: the same, wherever it lies.
std::vector<std::string> data_differences(const std::vector<checkpoint::DataEntry>& before,
                                          const std::vector<checkpoint::DataEntry>& now);

// A run that goes on must have the data and the tokenizer it had. Throws UserError naming what it
// was and is; `before` is that of its newest checkpoint. Older programs did not keep it: an empty
// one is logged. The copy of the tokenizer in the run is compared too; a damaged copy is logged,
// since it is written again.
void check_data_of_run(const std::filesystem::path& run,
                       const std::vector<checkpoint::DataEntry>& before, const TrainingData& now);

}  // namespace ballast::training
