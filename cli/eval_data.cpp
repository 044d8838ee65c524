// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_data.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "ballast/comm/agreement.h"
#include "ballast/comm/texts.h"
#include "ballast/loading/framing.h"
#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/tokens/prepare.h"
#include "ballast/tokens/token_dataset.h"
#include "ballast/training/validation_data.h"
#include "cli/model_options.h"

namespace ballast::cli {
namespace {

bool holds_tokens(const fs::path& path) {
  return tokens::TokenDataset::is_dataset(path) || path.extension() == ".bin" ||
         path.extension() == ".idx";
}

std::shared_ptr<tokens::TokenSource> open_tokens(const DataChoice& choice) {
  std::vector<std::unique_ptr<tokens::TokenSource>> parts;
  for (const std::string& path : choice.data) {
    if (!holds_tokens(path))
      fail("--data: {} is text and others are tokens: evaluate them one after the other", path);
    tokens::check_before_use(path);
    parts.push_back(tokens::open_token_source(path, choice.split));
  }
  if (parts.size() == 1) return std::move(parts.front());
  return tokens::concatenate(std::move(parts), {.name = "the data", .format = "several"});
}

// Prepares the text in `scratch` unless another worker has.
std::shared_ptr<tokens::TokenSource> open_text(const DataChoice& choice,
                                               const loading::LoadedModel& loaded,
                                               const fs::path& scratch) {
  const tokenizer::Tokenizer& tokenizer = require_tokenizer(loaded);
  if (!tokens::TokenDataset::is_dataset(scratch / "data")) {
    tokenizer.save(scratch / "tokenizer");
    tokens::PrepareRequest request;
    request.inputs = choice.data;
    request.out = scratch / "data";
    request.valid_fraction = 0;
    request.reading.split_names = text::SplitNames::kIgnored;  // all of it is evaluated on
    request.tokenizer = (scratch / "tokenizer").string();
    request.framing = loading::framing_of(loaded.data);
    tokens::prepare(request);
  }
  return tokens::open_token_source(scratch / "data", "train");
}

// Documents that begin otherwise than those the model was trained on are a harder text.
void warn_of_frames(const std::string& data, const loading::LoadedModel& loaded) {
  if (loaded.tokenizer == nullptr || !tokenizer::has_frame(*loaded.tokenizer)) return;
  const bool framed = loading::framing_of(loaded.data) == tokenizer::Framing::kFramed;
  if (!tokens::TokenDataset::is_dataset(data) || tokens::TokenDataset::is_framed(data) == framed)
    return;
  log_warning("{} was prepared {} the tokenizer's begin and end tokens, but the model's texts {}",
              data, framed ? "without" : "with", framed ? "have them" : "lack them");
}

std::shared_ptr<tokens::TokenSource> open_data(const DataChoice& choice,
                                               const loading::LoadedModel& loaded,
                                               const fs::path& scratch) {
  std::shared_ptr<tokens::TokenSource> source;
  if (choice.data.empty()) {
    source = training::open_validation_data(choice.model, loaded, scratch);
  } else if (std::ranges::any_of(choice.data, holds_tokens)) {
    source = open_tokens(choice);
  } else {
    source = open_text(choice, loaded, scratch);
  }
  if (loaded.tokenizer != nullptr) tokens::require_same_tokenizer(*source, *loaded.tokenizer);
  for (const std::string& path : choice.data) warn_of_frames(path, loaded);
  source->limit_vocabulary(static_cast<uint64_t>(loaded.config.model.vocabulary));
  return source;
}

// Whether tokens must first be made: of text, or of the built-in corpus.
bool needs_scratch(const DataChoice& choice, const loading::LoadedModel& loaded) {
  if (!choice.data.empty()) return std::ranges::none_of(choice.data, holds_tokens);
  return training::lacks_builtin_data(choice.model, loaded);
}

}  // namespace

EvalData::EvalData(const DataChoice& choice, const loading::LoadedModel& loaded,
                   comm::Communicator& workers) {
  const bool is_first = workers.rank() == 0;
  const auto on = [&](bool these, const std::function<void()>& work, comm::Label label) {
    comm::all_or_none(
        workers,
        [&] {
          if (these) work();
        },
        label);
  };
  on(is_first,
     [&] {
       if (needs_scratch(choice, loaded)) scratch_.emplace();
     },
     {"temporary folder"});
  const fs::path scratch =
      comm::gather_texts(workers, scratch_ ? scratch_->path().string() : "", {"temporary folder"})
          .front();
  if (workers.size() > 1 && !scratch.empty())
    comm::check_same_folder(workers, scratch, {"tokens of the text; TMPDIR chooses the place"});
  on(is_first, [&] { source_ = open_data(choice, loaded, scratch); }, {"prepare data"});
  on(!is_first, [&] { source_ = open_data(choice, loaded, scratch); }, {"open data"});
}

}  // namespace ballast::cli
