// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/training_data.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "ballast/loading/framing.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/system/number_from.h"
#include "ballast/tokens/prepare.h"
#include "ballast/tokens/token_dataset.h"

namespace ballast::training {
namespace {

namespace fs = std::filesystem;

struct NamedSource {
  std::string path;
  double weight = 1;
};

// PATH or PATH:WEIGHT; a colon that no number follows belongs to the path.
NamedSource parse_source(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return {text};
  const auto weight = number_from<double>(std::string_view(text).substr(colon + 1));
  return weight ? NamedSource{text.substr(0, colon), *weight} : NamedSource{text};
}

fs::path resolve(const std::string& path, const config::DataConfig& config,
                 const fs::path& builtin_folder) {
  if (path != "builtin") return path;
  if (tokens::TokenDataset::is_dataset(builtin_folder)) return builtin_folder;
  tokens::PrepareRequest request;
  request.inputs = {"builtin"};
  request.out = builtin_folder;
  request.builtin_bytes = static_cast<uint64_t>(config.builtin_bytes);
  request.seed = static_cast<uint64_t>(config.builtin_seed);
  if (config.builtin_vocabulary > 257) {
    request.tokenizer = "bpe";
    request.vocabulary_size = static_cast<tokenizer::TokenId>(config.builtin_vocabulary);
  }
  tokens::prepare(request);
  return builtin_folder;
}

std::shared_ptr<tokens::TokenSource> open_valid(const config::DataConfig& config,
                                                const std::vector<fs::path>& train,
                                                const fs::path& builtin) {
  std::vector<std::unique_ptr<tokens::TokenSource>> parts;
  for (const std::string& text : config.valid) {
    const fs::path path = resolve(text, config, builtin);
    tokens::check_before_use(path);
    parts.push_back(tokens::open_token_source(path, "valid"));
  }
  if (config.valid.empty()) {
    for (const fs::path& path : train) {
      if (!fs::is_directory(path)) continue;
      try {
        parts.push_back(tokens::open_token_source(path, "valid"));
      } catch (const UserError& error) {
        log_warning("no validation on {}: {}", path.string(), error.what());
      }
    }
  }
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) return std::move(parts.front());
  return tokens::concatenate(std::move(parts), {.name = "validation", .format = "several"});
}

void adopt_tokenizer(TrainingData& data, const tokens::TokenSource& source) {
  if (data.tokenizer == nullptr && source.info().tokenizer_folder) {
    data.tokenizer = tokenizer::load_tokenizer(source.info().tokenizer_folder->string());
  }
  if (data.tokenizer != nullptr) tokens::require_same_tokenizer(source, *data.tokenizer);
  data.vocabulary =
      std::max(data.vocabulary, static_cast<int64_t>(source.info().vocabulary_size.value_or(0)));
}

// Weights only matter among several sources, and there only in proportion.
std::string weight_in_words(const std::vector<batches::WeightedSource>& sources, size_t i) {
  if (sources.size() == 1) return "";
  double sum = 0;
  for (const batches::WeightedSource& source : sources) sum += source.weight;
  return fmt::format(", {:.6g} of the rows", sources[i].weight / sum);
}

std::vector<checkpoint::DataEntry> identity_of(const TrainingData& data,
                                               const config::DataConfig& config) {
  std::vector<checkpoint::DataEntry> entries;
  for (size_t i = 0; i < data.train.size(); ++i) {
    entries.push_back(
        {"train", config.train[i],
         tokens::fingerprint_text(*data.train[i].tokens) + weight_in_words(data.train, i)});
  }
  if (data.valid != nullptr) {
    const std::string name = config.valid.empty() ? "their valid split"
                                                  : fmt::format("{}", fmt::join(config.valid, ","));
    entries.push_back({"valid", name, tokens::fingerprint_text(*data.valid)});
  }
  if (data.tokenizer != nullptr)
    entries.push_back({"tokenizer", "of the data", tokens::fingerprint_text(*data.tokenizer)});
  return entries;
}

}  // namespace

TrainingData open_training_data(const config::DataConfig& config, const fs::path& builtin_folder) {
  TrainingData data;
  std::vector<fs::path> paths;
  for (const std::string& text : config.train) {
    const NamedSource named = parse_source(text);
    paths.push_back(resolve(named.path, config, builtin_folder));
    tokens::check_before_use(paths.back());
    std::shared_ptr<tokens::TokenSource> source = tokens::open_token_source(paths.back(), "train");
    adopt_tokenizer(data, *source);
    data.train.push_back({source, named.weight});
  }
  data.valid = open_valid(config, paths, builtin_folder);
  if (data.valid != nullptr) adopt_tokenizer(data, *data.valid);
  data.identity = identity_of(data, config);
  if (std::ranges::any_of(paths, tokens::TokenDataset::is_framed))
    data.identity.push_back(loading::entry_of_frame());
  return data;
}

void fit_vocabulary(config::ModelConfig& model, TrainingData& data) {
  if (model.vocabulary == 0) model.vocabulary = data.vocabulary;
  if (model.vocabulary == 0) {
    fail(
        "model.vocabulary: {} does not say how large its vocabulary is; give it, e.g. "
        "--model.vocabulary 50304",
        data.train.front().tokens->info().name);
  }
  if (model.document_mask && model.separator < 0) {
    if (data.tokenizer == nullptr) {
      fail(
          "model.document_mask: {} does not say which token ends a document; give it, e.g. "
          "--model.separator 50256",
          data.train.front().tokens->info().name);
    }
    model.separator = static_cast<int64_t>(data.tokenizer->end_of_text());
  }
  // The sources were opened here; batches hold them as constant.
  for (batches::WeightedSource& source : data.train) {
    std::const_pointer_cast<tokens::TokenSource>(source.tokens)
        ->limit_vocabulary(static_cast<uint64_t>(model.vocabulary));
  }
  if (data.valid != nullptr) data.valid->limit_vocabulary(static_cast<uint64_t>(model.vocabulary));
}

}  // namespace ballast::training
