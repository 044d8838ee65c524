// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "ballast/batches/batch_stream.h"
#include "ballast/checkpoint/manifest.h"
#include "ballast/config/config.h"
#include "ballast/tokenizer/tokenizer.h"
#include "ballast/tokens/token_source.h"

namespace ballast::training {

// What a run reads: the opened sources, and the tokenizer they agree on.
struct TrainingData {
  std::vector<batches::WeightedSource> train;
  std::shared_ptr<tokens::TokenSource> valid;       // null: there is nothing to validate on
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: token files that do not say
  int64_t vocabulary = 0;                           // the least the model must have; 0: unknown
  std::vector<checkpoint::DataEntry> identity;      // all of this, by its content
};

// Opens what the config names. The built-in corpus is prepared in `builtin_folder` unless it is
// there already. UserError: something is missing, or does not fit together.
TrainingData open_training_data(const config::DataConfig& config,
                                const std::filesystem::path& builtin_folder);

// Resolves model.vocabulary against the data (0: the data's), and model.separator where documents
// are told apart, and makes the sources refuse tokens beyond the vocabulary.
void fit_vocabulary(config::ModelConfig& model, TrainingData& data);

}  // namespace ballast::training
