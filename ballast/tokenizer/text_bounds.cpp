// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/text_bounds.h"

namespace ballast::tokenizer {

bool has_frame(const Tokenizer& tokenizer) {
  return !tokenizer.frame().begin.empty() || !tokenizer.frame().end.empty();
}

std::vector<TokenId> begin_of_document(const Tokenizer& tokenizer, Framing framing) {
  return framing == Framing::kFramed ? tokenizer.frame().begin : std::vector<TokenId>();
}

std::vector<TokenId> end_of_document(const Tokenizer& tokenizer, Framing framing) {
  std::vector<TokenId> end;
  if (framing == Framing::kFramed) end = tokenizer.frame().end;
  if (end.empty() || end.back() != tokenizer.end_of_text()) end.push_back(tokenizer.end_of_text());
  return end;
}

std::vector<TokenId> start_of_text(const Tokenizer& tokenizer, Framing framing) {
  std::vector<TokenId> start = begin_of_document(tokenizer, framing);
  if (start.empty()) start.push_back(tokenizer.end_of_text());
  return start;
}

}  // namespace ballast::tokenizer
