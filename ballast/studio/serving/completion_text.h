// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/inference/writer.h"
#include "ballast/studio/serving/completion_request.h"
#include "ballast/studio/serving/shown_text.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::serving {

// A prompt as the model reads it.
struct ReadPrompt {
  std::string text;                         // as it came; of token ids, what they stand for
  std::vector<tokenizer::TokenId> tokens;   // of the prompt alone
  std::vector<tokenizer::TokenId> written;  // with what stands before a document, unless it has it
};
// Refused: a token is not in the vocabulary, or it has more than `context` tokens.
ReadPrompt read_prompt(const CompletionRequest::Prompt& prompt,
                       const tokenizer::Tokenizer& tokenizer,
                       const std::vector<tokenizer::TokenId>& start, int64_t context);

// One choice of an answer while it is written, in the pieces that clients get.
class CompletionText {
 public:
  CompletionText(const CompletionRequest& request, const ReadPrompt& prompt,
                 const tokenizer::Tokenizer& tokenizer);

  // The prompt's own tokens, for "echo": what Writing::on_read tells.
  void add_prompt(const std::vector<inference::WrittenToken>& read);
  // False: a stop text has ended it.
  bool add(const inference::WrittenToken& token);
  void end(inference::WritingEnd end);

  int64_t tokens() const { return tokens_; }
  bool has_piece() const { return !text_.empty() || !ready_.empty(); }
  // {"text", "index", "logprobs", "finish_reason"} of all since the last call.
  nlohmann::ordered_json take(int64_t index);

 private:
  struct Told {
    inference::WrittenToken token;
    bool has_logprob = true;
    size_t begin = 0;       // in bytes of the new text
    int64_t character = 0;  // in the text with its prompt
  };
  void keep(const inference::WrittenToken& token, bool has_logprob, size_t begin);
  void release();
  std::string_view bytes_of(tokenizer::TokenId token) const;
  std::string name_of(tokenizer::TokenId token) const;
  nlohmann::ordered_json logprobs();

  const int64_t logprobs_;
  const tokenizer::Tokenizer& tokenizer_;
  const ReadPrompt prompt_;
  ShownText shown_;
  std::string text_;         // that is ready
  std::deque<Told> held_;    // tokens whose text is not
  std::vector<Told> ready_;  // and those whose text is
  size_t bytes_ = 0;         // of the new text
  int64_t tokens_ = 0, characters_ = 0;
  std::optional<std::string> finish_reason_;
};

}  // namespace ballast::serving
