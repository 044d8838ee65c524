// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/text_pipeline.h"

#include <fmt/format.h>

namespace ballast::tokenizer {
namespace {

// With its size before it, so that no text can look like what follows.
std::string quoted(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

std::string description_of(const Replace& replace) {
  return fmt::format("replace {} {}\n", quoted(replace.from), quoted(replace.to));
}

std::string description_of(const NormalizerStep& step) {
  if (const auto* form = std::get_if<UnicodeForm>(&step)) {
    return fmt::format("form {}\n", static_cast<int>(*form));
  }
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return fmt::format("prepend {}\n", quoted(prepend->text));
  }
  return description_of(std::get<Replace>(step));
}

std::string description_of(const CharacterModel& model) {
  std::string text = fmt::format("characters {} {} {}\n", model.byte_fallback, model.fuse_unknown,
                                 model.unknown ? int64_t{*model.unknown} : -1);
  if (model.metaspace) {
    text += fmt::format("metaspace {} {} {}\n", quoted(model.metaspace->replacement),
                        static_cast<int>(model.metaspace->scheme), model.metaspace->split);
  }
  for (const Replace& replace : model.decoder) text += "decoder " + description_of(replace);
  return text + fmt::format("decoder {} {}\n", model.decodes_bytes, model.stripped_spaces);
}

}  // namespace

std::string description_of(const TextPipeline& pipeline) {
  std::string text = fmt::format("{} {}\n", pipeline.ignore_merges, pipeline.first_added);
  for (const NormalizerStep& step : pipeline.normalizer) text += description_of(step);
  for (const SplitStep& step : pipeline.splits)
    text += fmt::format("split {}\n", quoted(step.pattern));
  if (pipeline.characters) text += description_of(*pipeline.characters);
  return text;
}

}  // namespace ballast::tokenizer
