// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/tokenizer/text_pipeline.h"

namespace ballast::tokenizer {

// Unicode's normal forms as Hugging Face `tokenizers` makes them, whose Unicode is that of 2016:
// code points which are younger stay as they are. So do bytes that are not UTF-8. All normalizers
// of a form share one table: a file may ask for many of them.
class UnicodeNormalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form);

  // False: the text is normalized already, and `result` is empty. Replaces what `result` holds.
  bool normalize(std::string_view text, std::string& result) const;

 private:
  // What a character does beside others, once it is known that it follows one that is kQuiet:
  enum class Conduct : uint8_t {
    kQuiet,    // nothing; but a character that is kActive may change it
    kActive,   // it changes, or it may change with what is before or after it
    kBarrier,  // nothing, and nothing changes it
  };
  static std::vector<Conduct> make_table(UnicodeForm form);
  template <UnicodeForm form>
  static const std::vector<Conduct>* table();
  Conduct conduct(uint32_t code_point) const;

  UnicodeForm form_;
  const std::vector<Conduct>* table_;  // by code point; all above are quiet
};

// The steps before text is cut, one after another.
class Normalizer {
 public:
  using Scratch = std::array<std::string, 2>;

  explicit Normalizer(const std::vector<NormalizerStep>& steps);

  bool is_empty() const { return steps_.empty(); }
  // `prepends` false: leaves out the steps that put something before the text.
  // The result is `text` itself, or in `scratch` until its next use.
  std::string_view apply(std::string_view text, bool prepends, Scratch& scratch) const;

 private:
  std::vector<std::variant<UnicodeNormalizer, Prepend, Replace>> steps_;
};

// Every `from` of the text becomes `to`; appends to `result`.
void append_replaced(std::string_view text, const Replace& replace, std::string& result);

}  // namespace ballast::tokenizer
