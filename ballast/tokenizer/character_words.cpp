// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/character_words.h"

#include <algorithm>

#include "ballast/tokenizer/normalizer.h"

namespace ballast::tokenizer {
namespace {

// What a space becomes, wherever that is done.
std::string mark_of(const TextPipeline& pipeline) {
  if (pipeline.characters->metaspace) return pipeline.characters->metaspace->replacement;
  for (const NormalizerStep& step : pipeline.normalizer) {
    const auto* replace = std::get_if<Replace>(&step);
    if (replace != nullptr && replace->from == " ") return replace->to;
  }
  return "";
}

// Whether a mark follows something that is no mark.
bool has_mark_within(std::string_view token, std::string_view mark) {
  size_t after_marks = 0;
  while (token.substr(after_marks).starts_with(mark)) after_marks += mark.size();
  return token.find(mark, after_marks) != std::string_view::npos;
}

}  // namespace

CharacterWords::CharacterWords(const BpeVocabulary& vocabulary)
    : metaspace_(vocabulary.pipeline.characters->metaspace),
      mark_(mark_of(vocabulary.pipeline)),
      cuts_(cuts_of(vocabulary, mark_)) {}

CharacterWords::Cuts CharacterWords::cuts_of(const BpeVocabulary& vocabulary,
                                             const std::string& mark) {
  const TextPipeline& pipeline = vocabulary.pipeline;
  if (pipeline.characters->metaspace && pipeline.characters->metaspace->split) {
    return Cuts::kBeforeMarks;
  }
  if (mark.empty() || pipeline.ignore_merges) return Cuts::kNone;
  // A mark that is no token would be unknown, and join what is unknown before it.
  const auto own_end =
      vocabulary.tokens.begin() +
      static_cast<ptrdiff_t>(std::min<size_t>(vocabulary.tokens.size(), pipeline.first_added));
  if (std::find(vocabulary.tokens.begin(), own_end, mark) == own_end) return Cuts::kNone;
  const bool is_joined = std::any_of(
      vocabulary.merges.begin(), vocabulary.merges.end(),
      [&](const Merge& merge) { return has_mark_within(vocabulary.tokens[merge.result], mark); });
  return is_joined ? Cuts::kNone : Cuts::kBeforeMarkRuns;
}

std::string_view CharacterWords::with_marks(std::string_view text, StretchStart start,
                                            std::string& scratch) const {
  if (!metaspace_ || text.empty()) return text;
  const bool wants_mark =
      (metaspace_->scheme == PrependScheme::kAlways && start != StretchStart::kContinued) ||
      (metaspace_->scheme == PrependScheme::kFirst && start == StretchStart::kText);
  scratch.clear();
  if (wants_mark && !text.starts_with(' ') && !text.starts_with(mark_)) scratch = mark_;
  append_replaced(text, {" ", mark_}, scratch);
  return scratch;
}

size_t CharacterWords::word_end(std::string_view text, size_t begin) const {
  if (cuts_ == Cuts::kNone) return text.size();
  size_t from = begin + 1;
  if (cuts_ == Cuts::kBeforeMarkRuns) {
    from = begin;
    while (text.substr(from).starts_with(mark_)) from += mark_.size();
  }
  return std::min(text.find(mark_, from), text.size());
}

}  // namespace ballast::tokenizer
