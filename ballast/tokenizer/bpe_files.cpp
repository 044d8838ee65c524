// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/tokenizer/json_field.h"
#include "ballast/tokenizer/normalizer.h"
#include "ballast/tokenizer/pipeline_json.h"

namespace ballast::tokenizer {
namespace {

using Json = nlohmann::json;

// What stands between documents in the families we know, GPT-2's, Llama 2's, 3's and Gemma's.
constexpr std::string_view kEndsOfText[] = {kEndOfText, "</s>", "<|end_of_text|>", "<eos>"};

Json parse_json_object(std::string_view text, const fs::path& path) {
  if (text.empty()) fail("{} is empty", path.string());
  Json json;
  try {
    json = parse_json(text);
  } catch (const BadJson& error) {
    fail("{} is not valid JSON (damaged or cut short?): {}", path.string(), error.what());
  }
  if (!json.is_object()) fail("{} holds no JSON object: not a tokenizer file", path.string());
  return json;
}

// A vocabulary while it is read, with what messages need.
class Builder {
 public:
  explicit Builder(fs::path vocab_file) : vocab_file_(std::move(vocab_file)) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    fail("{}: {}", vocab_file_.string(), fmt::format(message, std::forward<Args>(args)...));
  }

  void read_vocab(const Json& vocab, std::string_view field);
  // `where` names the merge in messages.
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  void add_token(const JsonField& token);
  // REQUIRE: the vocabulary was read.
  void set_pipeline(TextPipeline pipeline, const JsonField& model);
  void set_gpt2_pipeline() const { check_bytes(); }
  void set_frame(TextFrame frame);
  // End-of-text is recognised in text even where nothing declares it.
  void declare_end_of_text();
  BpeVocabulary finish(const std::optional<std::string>& end_of_text = {});

 private:
  TokenId id_in_vocab(const std::string& token, const std::string& where) const;
  void check_bytes() const;
  TokenId find_end_of_text(const std::optional<std::string>& name = {}) const;
  void check_added_tokens() const;
  void check_normalized_contents() const;

  fs::path vocab_file_;
  BpeVocabulary result_;
  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_set<TokenId> declared_;  // as added tokens
};

void Builder::read_vocab(const Json& vocab, std::string_view field) {
  if (!vocab.is_object()) refuse("{} is no object of tokens and ids", field);
  const size_t count = vocab.size();
  result_.tokens.resize(count);
  for (const auto& [token, id] : vocab.items()) {
    if (token.empty()) refuse("{} has an empty token", field);
    if (!id.is_number_unsigned()) refuse("{}: the id of \"{}\" is {}", field, token, id.dump());
    const auto number = id.get<uint64_t>();
    if (number >= count) {
      refuse("{}: \"{}\" has id {}, but {} tokens must have the ids 0 to {} without holes", field,
             token, number, count, count - 1);
    }
    std::string& place = result_.tokens[number];
    if (!place.empty())
      refuse("{}: \"{}\" and \"{}\" both have id {}", field, place, token, number);
    place = token;
    ids_.emplace(token, static_cast<TokenId>(number));
  }
}

void Builder::check_bytes() const {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_level_alphabet()[byte];
    if (!ids_.contains(character)) {
      refuse("the vocabulary has no token for byte {:#04x} (\"{}\"): not a byte-level BPE", byte,
             character);
    }
  }
}

TokenId Builder::id_in_vocab(const std::string& token, const std::string& where) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    fail("{}: \"{}\" is not in the vocabulary of {}", where, token, vocab_file_.string());
  }
  return found->second;
}

void Builder::add_merge(std::string_view left, std::string_view right, const std::string& where) {
  const std::string first(left), second(right);
  const TokenId left_id = id_in_vocab(first, where), right_id = id_in_vocab(second, where);
  result_.merges.push_back({left_id, right_id, id_in_vocab(first + second, where)});
}

void Builder::add_token(const JsonField& token) {
  const std::string& content = token.text("content");
  const uint64_t id = token.number("id");
  if (content.empty()) token.at("content").refuse("is empty");
  const auto next = static_cast<TokenId>(result_.tokens.size());
  const auto [known, is_new] = ids_.emplace(content, next);
  if (is_new) result_.tokens.push_back(content);
  if (known->second != id) {
    token.refuse("is \"{}\" and has id {} here, but {} is its id {}", content, id, known->second,
                 is_new ? "by its place after the vocabulary" : "in the vocabulary");
  }
  if (!declared_.insert(known->second).second) {
    token.refuse("declares \"{}\" a second time", content);
  }
  result_.added.push_back({.id = known->second,
                           .normalized = token.flag("normalized", false),
                           .special = token.flag("special", false),
                           .left_strip = token.flag("lstrip", false),
                           .right_strip = token.flag("rstrip", false),
                           .single_word = token.flag("single_word", false)});
}

void Builder::set_pipeline(TextPipeline pipeline, const JsonField& model) {
  if (pipeline.characters && model.has("unk_token")) {
    const std::string& name = model.text("unk_token");
    const auto found = ids_.find(name);
    if (found == ids_.end()) {
      model.at("unk_token").refuse("is \"{}\", which is not in model.vocab", name);
    }
    pipeline.characters->unknown = found->second;
  }
  if (pipeline.characters || pipeline.ignore_merges) {
    pipeline.first_added = static_cast<TokenId>(result_.tokens.size());
  }
  if (!pipeline.characters) check_bytes();
  result_.pipeline = std::move(pipeline);
}

void Builder::set_frame(TextFrame frame) {
  for (const auto* side : {&frame.begin, &frame.end}) {
    for (const TokenId id : *side) {
      if (id < result_.tokens.size()) continue;
      refuse("post_processor adds a token with id {}, but there are {} tokens", id,
             result_.tokens.size());
    }
  }
  result_.frame = std::move(frame);
}

TokenId Builder::find_end_of_text(const std::optional<std::string>& name) const {
  for (const std::string_view known : kEndsOfText) {
    if (const auto found = ids_.find(std::string(known)); found != ids_.end()) return found->second;
  }
  if (name) {
    if (const auto found = ids_.find(*name); found != ids_.end()) return found->second;
  }
  refuse(
      "no end-of-text token: none of {}, and no eos_token of a tokenizer_config.json beside it. "
      "Add {} to the vocabulary (in Python: tokenizer.add_special_tokens([\"{}\"]), then save it "
      "again)",
      fmt::join(kEndsOfText, ", "), kEndOfText, kEndOfText);
}

void Builder::declare_end_of_text() { result_.added.push_back({.id = find_end_of_text()}); }

// An added token is found in text as it is written; the same string as a product of merges stands
// for other bytes, and one id cannot be both.
void Builder::check_added_tokens() const {
  std::vector<bool> is_product(result_.tokens.size());
  for (const Merge& merge : result_.merges) is_product[merge.result] = true;
  for (const AddedToken& added : result_.added) {
    const std::string& content = result_.tokens[added.id];
    const std::string bytes = bytes_of_token(content);
    if (bytes != content && (bytes.size() == 1 || is_product[added.id])) {
      refuse("added token \"{}\" is also an ordinary token that stands for other bytes", content);
    }
  }
}

// Two that are sought as the same text, or as no text, cannot be told apart.
void Builder::check_normalized_contents() const {
  const Normalizer normalizer(result_.pipeline.normalizer);
  Normalizer::Scratch scratch;
  std::unordered_map<std::string, TokenId> seen;
  for (const AddedToken& added : result_.added) {
    if (!added.normalized) continue;
    const std::string& content = result_.tokens[added.id];
    const std::string normalized(normalizer.apply(content, true, scratch));
    const auto [other, is_new] = seen.emplace(normalized, added.id);
    if (normalized.empty() || !is_new) {
      refuse("added token \"{}\" is \"{}\" once it is normalized, which is {}", content, normalized,
             normalized.empty() ? "nothing" : "another one too");
    }
  }
}

BpeVocabulary Builder::finish(const std::optional<std::string>& end_of_text) {
  result_.end_of_text = find_end_of_text(end_of_text);
  drop_repeated_merges(result_.merges);
  if (!result_.pipeline.characters) check_added_tokens();
  check_normalized_contents();
  return std::move(result_);
}

// "left right" -> the two parts, or false.
bool split_merge(std::string_view line, std::string_view& left, std::string_view& right) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  left = line.substr(0, space);
  right = line.substr(space + 1);
  return !left.empty() && !right.empty();
}

void read_json_merges(const fs::path& path, const Json& merges, Builder& builder) {
  if (!merges.is_array()) builder.refuse("model.merges is no list");
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Json& merge = merges[rank];
    const auto where = [&] { return fmt::format("{}: model.merges[{}]", path.string(), rank); };
    std::string_view left, right;
    if (merge.is_string() && split_merge(merge.get_ref<const std::string&>(), left, right)) {
      builder.add_merge(left, right, where());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      builder.add_merge(merge[0].get_ref<const std::string&>(),
                        merge[1].get_ref<const std::string&>(), where());
    } else {
      fail("{} is neither \"left right\" nor [\"left\", \"right\"]", where());
    }
  }
}

// The text of eos_token in a tokenizer_config.json, plain or as an added token.
std::optional<std::string> read_end_of_text(std::string_view text, const fs::path& path) {
  const Json json = parse_json_object(text, path);
  const JsonField file(json, path.string());
  if (!file.has("eos_token")) return std::nullopt;
  const JsonField token = file.at("eos_token");
  return token.json().is_object() ? token.text("content") : token.text();
}

}  // namespace

BpeVocabulary parse_tokenizer_json(std::string_view text, const fs::path& path,
                                   const TokenizerConfig& config) {
  const Json json = parse_json_object(text, path);
  const JsonField file(json, path.string());
  if (file.has("version") && file.at("version").json() != "1.0") {
    file.at("version").refuse("is {}: only \"1.0\" is known", json["version"].dump());
  }
  const JsonField model = file.at("model");
  if (model.has("type") && model.type() != "BPE") {
    model.at("type").refuse("is \"{}\": only \"BPE\" is supported", model.type());
  }
  Builder builder(path);
  builder.read_vocab(model.at("vocab").json(), "model.vocab");
  builder.set_pipeline(read_pipeline(file), model);
  read_json_merges(path, model.at("merges").json(), builder);
  if (file.has("added_tokens")) {
    for (const JsonField& token : file.list("added_tokens")) builder.add_token(token);
  }
  builder.set_frame(read_frame(file));
  return builder.finish(config.text.empty() ? std::nullopt
                                            : read_end_of_text(config.text, config.path));
}

BpeVocabulary read_vocab_and_merges(const fs::path& vocab_json, const fs::path& merges_txt) {
  Builder builder(vocab_json);
  const MappedFile vocab(vocab_json);
  builder.read_vocab(parse_json_object(vocab.text(), vocab_json), "the vocabulary");
  builder.set_gpt2_pipeline();
  const MappedFile file(merges_txt);
  std::string_view text = file.text();
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t size = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, size), left, right;
    text.remove_prefix(std::min(size + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    const auto where = [&] { return fmt::format("{} line {}", merges_txt.string(), number); };
    if (!split_merge(line, left, right)) {
      fail("{} is not two tokens with one space between them (damaged or cut short?)", where());
    }
    builder.add_merge(left, right, where());
  }
  builder.declare_end_of_text();
  return builder.finish();
}

}  // namespace ballast::tokenizer
