// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ballast/inference/score.h"
#include "ballast/tokenizer/text_bounds.h"

namespace ballast::inference {

// Standard tasks on raw text, with the definitions of the Language Model Evaluation Harness
// (lm-eval), so that numbers can be compared with published ones.

struct Metric {
  std::string name;  // as lm-eval calls it: "acc", "word_perplexity"
  double value = 0;
  std::optional<double> error = {};  // standard error of a mean over items
};
struct TaskResult {
  uint64_t items = 0;  // documents or questions
  std::vector<Metric> metrics;
};

struct LastWordItem {
  std::string text;  // the last word is what follows its last space
};
struct ChoiceItem {
  std::string query;
  std::vector<std::string> choices;  // each follows the query and a space
  size_t gold = 0;                   // the right one
};

// A task as questions to a model, and what follows from the answers. Questions refer to nothing of
// what they were made of.
struct TextTask {
  std::vector<Continuation> questions;
  std::function<TaskResult(const std::vector<ContinuationScore>&)> sum_up;  // of all questions
};

// For whom questions are made.
struct Reader {
  std::string file;  // that the items come from, for messages
  const tokenizer::Tokenizer& tokenizer;
  int64_t context = 0;  // of the model
  tokenizer::Framing framing = tokenizer::Framing::kPlain;
};

// All throw UserError naming the item that cannot be asked, counted from 1.

// Documents, each predicted from start_of_text() on in rolling_windows(): word_perplexity,
// byte_perplexity, bits_per_byte.
TextTask word_perplexity(const Reader& reader, const std::vector<std::string>& documents);
// The same of files of WikiText, by page (wikitext.h): the model reads text as people write it;
// words and bytes are those of the file.
TextTask wikitext_perplexity(const Reader& reader, const std::vector<std::string>& files);
// Of the last word after all before it: perplexity, acc (the model's likeliest tokens are it).
TextTask last_words(const Reader& reader, const std::vector<LastWordItem>& items);
// acc: how often the right choice is the likeliest; acc_norm: by nats a character of the choice.
TextTask multiple_choice(const Reader& reader, const std::vector<ChoiceItem>& items);

// One more than there are runs of white space (Unicode's, in UTF-8): what Python's
// re.split(r"\s+", text) gives, the empty parts at the ends included.
uint64_t count_words(std::string_view text);

// The tokens of `context` and those that `continuation` adds to it. White space at the end of the
// context belongs to what follows; an empty context is start_of_text(). Framed texts begin with the
// frame's begin.
Continuation encode_pair(const tokenizer::Tokenizer& tokenizer, std::string_view context,
                         std::string_view continuation,
                         tokenizer::Framing framing = tokenizer::Framing::kPlain);

}  // namespace ballast::inference
