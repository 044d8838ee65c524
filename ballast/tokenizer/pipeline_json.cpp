// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/pipeline_json.h"

#include <algorithm>
#include <utility>

#include "ballast/tokenizer/split_pattern.h"

namespace ballast::tokenizer {
namespace {

// GPT-2's pattern, as it is written where it is no pre-tokenizer of its own.
constexpr std::string_view kGpt2Patterns[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
constexpr const char* kDigits = R"(\p{N}+)";
constexpr const char* kSingleDigits = R"(\p{N})";

[[noreturn]] void refuse_type(const JsonField& field, std::string_view known) {
  field.refuse("has the type \"{}\", which is not supported (known here: {})", field.type(), known);
}

// The parts of a "Sequence", whose list has another name in each kind; or the one part there is.
std::vector<JsonField> parts_of(const JsonField& field, const char* list) {
  if (field.is_null()) return {};
  if (field.type() != "Sequence") return {field};
  std::vector<JsonField> parts;
  for (const JsonField& part : field.list(list)) {
    if (part.type() == "Sequence") part.refuse("is a Sequence within a Sequence: not supported");
    parts.push_back(part);
  }
  return parts;
}

std::vector<JsonField> parts_of_key(const JsonField& file, const char* key, const char* list) {
  return file.has(key) ? parts_of(file.at(key), list) : std::vector<JsonField>();
}

// A "pattern" that must be plain text.
Replace read_replace(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  if (!pattern.has("String")) pattern.refuse("is no {{\"String\": ...}}: others are not supported");
  Replace replace{pattern.text("String"), field.text("content")};
  if (replace.from.empty()) pattern.refuse("is empty");
  return replace;
}

NormalizerStep read_normalizer_step(const JsonField& field) {
  constexpr std::pair<std::string_view, UnicodeForm> kForms[] = {{"NFC", UnicodeForm::kNfc},
                                                                 {"NFD", UnicodeForm::kNfd},
                                                                 {"NFKC", UnicodeForm::kNfkc},
                                                                 {"NFKD", UnicodeForm::kNfkd}};
  const std::string& type = field.type();
  for (const auto& [name, form] : kForms) {
    if (type == name) return form;
  }
  if (type == "Prepend") return Prepend{field.text("prepend")};
  if (type == "Replace") return read_replace(field);
  refuse_type(field, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence");
}

SplitStep read_split(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  if (!pattern.has("Regex")) pattern.refuse("is no {{\"Regex\": ...}}: others are not supported");
  if (field.text("behavior") != "Isolated") {
    field.at("behavior")
        .refuse("is \"{}\": only \"Isolated\" is supported", field.text("behavior"));
  }
  const JsonField regex = pattern.at("Regex");
  if (std::ranges::count(kGpt2Patterns, regex.text()) > 0) return {};
  try {
    const SplitPattern check(regex.text());
  } catch (const BadPattern& bad) {
    regex.refuse("is a pattern that is not supported: {}", bad.what());
  }
  return {regex.text()};
}

void check_byte_level(const JsonField& field) {
  if (field.flag("add_prefix_space", true)) {
    fail(
        "{}: {}.add_prefix_space must be false: a space that is not in the text would not decode "
        "to the same text",
        field.file(), field.key());
  }
}

std::vector<SplitStep> read_byte_level_splits(const std::vector<JsonField>& parts) {
  std::vector<SplitStep> splits;
  for (const JsonField& part : parts) {
    const bool is_last = &part == &parts.back();
    if (part.type() == "Split") {
      splits.push_back(read_split(part));
    } else if (part.type() == "Digits") {
      splits.push_back({part.flag("individual_digits", false) ? kSingleDigits : kDigits});
    } else if (part.type() == "ByteLevel" && is_last) {
      check_byte_level(part);
      if (part.flag("use_regex", true)) splits.emplace_back();
    } else if (part.type() == "ByteLevel") {
      part.refuse("is a ByteLevel with others after it: it must be the last");
    } else {
      refuse_type(part, "Split, Digits, ByteLevel, Metaspace, Sequence");
    }
  }
  return splits;
}

Metaspace read_metaspace(const JsonField& field) {
  Metaspace metaspace;
  metaspace.replacement = field.text("replacement");
  const auto starts_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  if (std::ranges::count_if(metaspace.replacement, starts_character) != 1) {
    field.at("replacement").refuse("is not one character");
  }
  metaspace.split = field.flag("split", true);
  const std::string scheme =
      field.has("prepend_scheme") ? field.text("prepend_scheme") : std::string("always");
  if (scheme == "first") {
    metaspace.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    metaspace.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    field.at("prepend_scheme").refuse("is \"{}\": it must be first, always or never", scheme);
  }
  if (!field.flag("add_prefix_space", true) && metaspace.scheme != PrependScheme::kNever) {
    field.refuse("has add_prefix_space false, which its prepend_scheme contradicts");
  }
  return metaspace;
}

// Replace ..., ByteFallback, Fuse, Strip, in that order.
void read_character_decoder(const JsonField& file, CharacterModel& model) {
  constexpr std::string_view kOrder[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
  const auto parts = parts_of_key(file, "decoder", "decoders");
  ptrdiff_t last = 0;
  for (const JsonField& part : parts) {
    const auto* place = std::find(std::begin(kOrder), std::end(kOrder), part.type());
    if (place == std::end(kOrder)) refuse_type(part, "Replace, ByteFallback, Fuse, Strip");
    if (place - kOrder < last) part.refuse("({}) stands after {}", part.type(), kOrder[last]);
    last = place - kOrder;
    if (*place == "Replace") model.decoder.push_back(read_replace(part));
    model.decodes_bytes |= *place == "ByteFallback";
    if (*place != "Strip") continue;
    if (part.text("content") != " " || part.number("stop") != 0) {
      part.refuse("strips something other than spaces at the start: not supported");
    }
    model.stripped_spaces = static_cast<uint32_t>(std::min<uint64_t>(part.number("start"), 1000));
  }
  const bool fuses =
      std::ranges::any_of(parts, [](const JsonField& part) { return part.type() == "Fuse"; });
  if (!fuses) {
    file.refuse("decoder has no Fuse: tokens that stand apart in decoded text are not supported");
  }
}

void check_byte_level_decoder(const JsonField& file) {
  for (const JsonField& part : parts_of_key(file, "decoder", "decoders")) {
    if (part.type() != "ByteLevel") refuse_type(part, "ByteLevel");
  }
}

// Null, an empty string, false and 0 all mean that an option is off.
bool is_off(const JsonField& field, const char* name) {
  if (!field.has(name)) return true;
  const JsonField::Json& value = field.at(name).json();
  return value == "" || value == false || value == 0;
}

}  // namespace

TextPipeline read_pipeline(const JsonField& file) {
  for (const char* name : {"truncation", "padding"}) {
    if (!is_off(file, name)) file.at(name).refuse("is not supported: it must be null");
  }
  const JsonField model = file.at("model");
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!is_off(model, name)) {
      model.at(name).refuse("= {} is not supported", model.at(name).json().dump());
    }
  }
  TextPipeline pipeline;
  pipeline.ignore_merges = model.flag("ignore_merges", false);
  for (const JsonField& part : parts_of_key(file, "normalizer", "normalizers")) {
    pipeline.normalizer.push_back(read_normalizer_step(part));
  }
  const auto parts = parts_of_key(file, "pre_tokenizer", "pretokenizers");
  if (!parts.empty() && parts.back().type() != "Metaspace") {
    pipeline.splits = read_byte_level_splits(parts);
    if (parts.back().type() != "ByteLevel") {
      file.refuse("pre_tokenizer does not end in ByteLevel: only byte-level BPE is cut like this");
    }
    check_byte_level_decoder(file);
    return pipeline;
  }
  if (parts.empty() && file.has("decoder") && file.at("decoder").type() == "ByteLevel") {
    file.refuse("pre_tokenizer is null, but the decoder is ByteLevel: one of them is missing");
  }
  if (parts.size() > 1) parts.front().refuse("stands before Metaspace: not supported");
  pipeline.splits.clear();
  CharacterModel& characters = pipeline.characters.emplace();
  if (!parts.empty()) characters.metaspace = read_metaspace(parts.front());
  characters.byte_fallback = model.flag("byte_fallback", false);
  characters.fuse_unknown = model.flag("fuse_unk", false);
  read_character_decoder(file, characters);
  return pipeline;
}

namespace {

// The ids of a special token of a template.
std::vector<TokenId> read_template_token(const JsonField& processor, const JsonField& piece) {
  const std::string& name = piece.at("SpecialToken").text("id");
  const JsonField token = processor.at("special_tokens").at(name.c_str());
  std::vector<TokenId> ids;
  for (const JsonField& id : token.list("ids")) {
    if (!id.json().is_number_unsigned()) id.refuse("is no number from 0");
    ids.push_back(static_cast<TokenId>(std::min<uint64_t>(id.json().get<uint64_t>(), UINT32_MAX)));
  }
  return ids;
}

void read_template(const JsonField& processor, TextFrame& frame) {
  bool text_was_read = false;
  for (const JsonField& piece : processor.list("single")) {
    if (piece.has("Sequence")) {
      if (std::exchange(text_was_read, true)) piece.refuse("repeats the text: not supported");
      continue;
    }
    auto& side = text_was_read ? frame.end : frame.begin;
    for (const TokenId id : read_template_token(processor, piece)) side.push_back(id);
  }
  if (!text_was_read) processor.at("single").refuse("leaves out the text: not supported");
}

}  // namespace

TextFrame read_frame(const JsonField& file) {
  TextFrame frame;
  bool has_template = false;
  for (const JsonField& part : parts_of_key(file, "post_processor", "processors")) {
    if (part.type() == "ByteLevel") continue;  // it moves offsets, which we do not have
    if (part.type() != "TemplateProcessing") refuse_type(part, "ByteLevel, TemplateProcessing");
    if (std::exchange(has_template, true)) part.refuse("is a second TemplateProcessing");
    read_template(part, frame);
  }
  return frame;
}

}  // namespace ballast::tokenizer
