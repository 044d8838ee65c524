// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"

namespace ballast::tokenizer {
namespace {

using Json = nlohmann::json;

Json parse_json_object(const fs::path& path) {
  const MappedFile file(path);
  if (file.text().empty()) fail("{} is empty", path.string());
  Json json;
  try {
    json = parse_json(file.text());
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
  void add_token(const Json& token, size_t index);
  // End-of-text is recognised in text even where nothing declares it.
  void declare_end_of_text();
  BpeVocabulary finish();

 private:
  TokenId id_in_vocab(const std::string& token, const std::string& where) const;
  void check_bytes() const;
  TokenId find_end_of_text() const;
  void check_added_tokens() const;

  fs::path vocab_file_;
  BpeVocabulary result_;
  std::unordered_map<std::string, TokenId> ids_;
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
  check_bytes();
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

void Builder::add_token(const Json& token, size_t index) {
  const std::string field = fmt::format("added_tokens[{}]", index);
  const auto flag = [&](const char* name) {
    const auto found = token.find(name);
    if (found == token.end()) return false;
    if (!found->is_boolean()) refuse("{}.{} is neither true nor false", field, name);
    return found->get<bool>();
  };
  if (!token.is_object() || !token.contains("content") || !token["content"].is_string() ||
      !token.contains("id") || !token["id"].is_number_unsigned()) {
    refuse("{} needs `content` (text) and `id` (a number)", field);
  }
  const auto content = token["content"].get<std::string>();
  const auto id = token["id"].get<uint64_t>();
  if (content.empty()) refuse("{}.content is empty", field);
  for (const char* name : {"lstrip", "rstrip", "single_word"}) {
    if (flag(name)) {
      refuse(
          "{}.{} of \"{}\" is true, which is not supported (text would be lost, or depend on "
          "its surroundings): set it to false",
          field, name, content);
    }
  }
  const auto next = static_cast<TokenId>(result_.tokens.size());
  const auto [known, is_new] = ids_.emplace(content, next);
  if (is_new) result_.tokens.push_back(content);
  if (known->second != id) {
    refuse("{}: \"{}\" has id {} here, but {} is its id {}", field, content, id, known->second,
           is_new ? "by its place after the vocabulary" : "in the vocabulary");
  }
  const auto has_same_id = [&](const AddedToken& other) { return other.id == id; };
  if (std::any_of(result_.added.begin(), result_.added.end(), has_same_id)) {
    refuse("{}: \"{}\" is declared twice", field, content);
  }
  result_.added.push_back({known->second, flag("normalized"), flag("special")});
}

TokenId Builder::find_end_of_text() const {
  for (const char* name : {kEndOfText.data(), "</s>"}) {
    if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  }
  refuse(
      "no end-of-text token: add {} to the vocabulary (in Python: "
      "tokenizer.add_special_tokens([\"{}\"]), then save it again)",
      kEndOfText, kEndOfText);
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

BpeVocabulary Builder::finish() {
  result_.end_of_text = find_end_of_text();
  drop_repeated_merges(result_.merges);
  check_added_tokens();
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

// Null, an empty string, false and 0 all mean that an option is off.
bool is_off(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() || *found == "" || *found == false || *found == 0;
}

// Refuses whatever would make Hugging Face's ids differ from ours.
void check_pipeline(const Json& json, const Builder& builder) {
  const auto version = json.find("version");
  if (version != json.end() && *version != "1.0") {
    builder.refuse("version is {}: only \"1.0\" is known", version->dump());
  }
  for (const char* name : {"normalizer", "truncation", "padding"}) {
    if (!is_off(json, name)) builder.refuse("{} is not supported: it must be null", name);
  }
  const auto type_of = [&](const char* name) -> std::string {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) return "null";
    return found->is_object() ? found->value("type", Json()).dump() : found->dump();
  };
  if (type_of("pre_tokenizer") != "\"ByteLevel\"") {
    builder.refuse("pre_tokenizer is {}: only GPT-2's \"ByteLevel\" is supported",
                   type_of("pre_tokenizer"));
  }
  for (const char* name : {"post_processor", "decoder"}) {
    if (type_of(name) != "null" && type_of(name) != "\"ByteLevel\"") {
      builder.refuse("{} {} is not supported: it must be null or \"ByteLevel\"", name,
                     type_of(name));
    }
  }
  const Json& pre_tokenizer = json["pre_tokenizer"];
  if (!pre_tokenizer.contains("add_prefix_space") || pre_tokenizer["add_prefix_space"] != false) {
    builder.refuse(
        "pre_tokenizer.add_prefix_space must be false: a space that is not in the text "
        "would not decode to the same text");
  }
  if (pre_tokenizer.value("use_regex", Json(true)) != true) {
    builder.refuse("pre_tokenizer.use_regex must be true");
  }
}

const Json& check_model(const Json& json, const Builder& builder) {
  const auto model = json.find("model");
  if (model == json.end() || !model->is_object()) builder.refuse("model is missing");
  if (const Json type = model->value("type", Json("BPE")); type != "BPE") {
    builder.refuse("model.type is {}: only \"BPE\" is supported", type.dump());
  }
  for (const char* name : {"vocab", "merges"}) {
    if (!model->contains(name)) builder.refuse("model.{} is missing", name);
  }
  for (const char* name :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"}) {
    if (!is_off(*model, name)) {
      builder.refuse("model.{} = {} is not supported", name, (*model)[name].dump());
    }
  }
  return *model;
}

}  // namespace

BpeVocabulary read_tokenizer_json(const fs::path& path) {
  const Json json = parse_json_object(path);
  Builder builder(path);
  const Json& model = check_model(json, builder);
  check_pipeline(json, builder);
  builder.read_vocab(model["vocab"], "model.vocab");
  read_json_merges(path, model["merges"], builder);
  const Json added = json.value("added_tokens", Json::array());
  if (!added.is_array()) builder.refuse("added_tokens is no list");
  for (size_t i = 0; i < added.size(); ++i) builder.add_token(added[i], i);
  return builder.finish();
}

BpeVocabulary read_vocab_and_merges(const fs::path& vocab_json, const fs::path& merges_txt) {
  Builder builder(vocab_json);
  builder.read_vocab(parse_json_object(vocab_json), "the vocabulary");
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
