// SPDX-License-Identifier: Apache-2.0
#include "cli/sized_config.h"

#include <fmt/ranges.h>

#include "ballast/system/error.h"
#include "ballast/training/train.h"

namespace ballast::cli {

config::Config read_sized_config(const ConfigOptions& options, const std::string& file) {
  training::TrainRequest request;
  request.config_file = file;
  request.scale = options.scale_of_file();
  request.overrides = options.overrides();
  config::Config config = training::resolve_config(request);
  if (config.model.vocabulary == 0 && config.data.train == std::vector<std::string>{"builtin"})
    config.model.vocabulary = config.data.builtin_vocabulary;
  if (config.model.vocabulary == 0) {
    fail(
        "model.vocabulary: the configuration leaves it to the tokenizer of {}, which is not opened "
        "here; give it, e.g. --model.vocabulary 50304",
        fmt::join(config.data.train, ", "));
  }
  return config;
}

}  // namespace ballast::cli
