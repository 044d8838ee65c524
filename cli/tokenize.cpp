// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/loading/loaded_model.h"
#include "ballast/system/error.h"
#include "ballast/system/input_stream.h"
#include "ballast/system/number_from.h"
#include "ballast/system/utf8.h"
#include "ballast/tokenizer/token_text.h"
#include "ballast/tokenizer/tokenizer.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

constexpr const char* kExamples = R"(
Examples
  ballast tokenize "It's 12 o'clock." --tokenizer runs/mine        ids and pieces, one a line
  ballast tokenize --file note.txt --tokenizer data/mine --count   how many tokens a file has
  echo hello | ballast tokenize --tokenizer llama/tokenizer.json --json
  ballast tokenize --ids 15043,3186 --tokenizer llama/             the text of token ids
Without text the standard input is read to its end. In pieces, control characters and bytes that are
not UTF-8 are written as \n or \x1b.

JSON keys (--json): tokenizer (its kind), vocabulary_size, text_bytes, tokens (how many), ids,
  pieces; begin and end, the tokens that --special puts around a text. With --ids: tokens, ids,
  text, in which bytes that are not UTF-8 are replaced. With --count: text_bytes and tokens alone.
)";

struct Options {
  std::string tokenizer, file, ids;
  std::vector<std::string> text;  // one, or none
  bool count = false, special = false, json = false;
};

std::string read_all(const std::string& path) {
  InputStream stream(path);
  std::string text, block(1 << 16, '\0');
  while (const size_t size = stream.read({block.data(), block.size()})) text.append(block, 0, size);
  return text;
}

// A run, a checkpoint or an export holds its tokenizer in a folder of its own.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
  const auto folder = loading::tokenizer_folder_of(path);
  return tokenizer::load_tokenizer(folder.empty() ? path : folder.string());
}

std::vector<TokenId> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " ,\t\r\n[]";
  std::vector<TokenId> ids;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    const auto id = number_from<TokenId>(word);
    if (!id) fail("--ids: \"{}\" is no token id; give numbers with commas or spaces between", word);
    ids.push_back(*id);
    text.remove_prefix(word.size());
  }
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, bool special) {
  std::vector<TokenId> ids;
  if (special) ids = tokenizer.frame().begin;
  tokenizer.encode(text, ids);
  if (special) ids.insert(ids.end(), tokenizer.frame().end.begin(), tokenizer.frame().end.end());
  return ids;
}

int show_text(const Options& options, const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = parse_ids(options.ids == "-" ? read_all("-") : options.ids);
  const std::string text = tokenizer.decode_text(ids);
  if (options.json) {
    const Json out = {{"tokens", ids.size()}, {"ids", ids}, {"text", replace_invalid_utf8(text)}};
    fmt::print("{}\n", out.dump());
    return 0;
  }
  // Every byte as it is; but a terminal is not to be commanded by a text.
  const std::string shown = ::isatty(STDOUT_FILENO) != 0 ? printable(text) : text;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (!shown.ends_with('\n')) fmt::print("\n");
  return 0;
}

int show_tokens(const Options& options, const Tokenizer& tokenizer) {
  const std::string text = !options.text.empty()
                               ? options.text.front()
                               : read_all(options.file.empty() ? "-" : options.file);
  const std::vector<TokenId> ids = encode(tokenizer, text, options.special);
  Json out;
  if (!options.count) {
    out = {{"tokenizer", tokenizer.kind()}, {"vocabulary_size", tokenizer.vocabulary_size()}};
  }
  out.update({{"text_bytes", text.size()}, {"tokens", ids.size()}});
  if (!options.json && options.count) {
    fmt::print("{}\n", ids.size());
    return 0;
  }
  std::vector<std::string> pieces;
  if (!options.count) {
    for (const TokenId id : ids) pieces.push_back(*tokenizer::token_text(&tokenizer, id));
  }
  if (!options.json) {
    for (size_t i = 0; i < ids.size(); ++i) fmt::print("{:>8}  {}\n", ids[i], pieces[i]);
    fmt::print("{} tokens of {} bytes\n", ids.size(), text.size());
    return 0;
  }
  if (!options.count) {
    out.update({{"ids", ids},
                {"pieces", pieces},
                {"begin", tokenizer.frame().begin},
                {"end", tokenizer.frame().end}});
  }
  fmt::print("{}\n", out.dump());
  return 0;
}

int run(const Options& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  return options.ids.empty() ? show_tokens(options, *tokenizer) : show_text(options, *tokenizer);
}

}  // namespace

void add_tokenize(CLI::App& app, Action& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "tokenize", "Show the token ids and pieces of a text, or the text of ids", kExamples);
  auto* text = command->add_option("TEXT", options->text, "the text itself")->expected(0, 1);
  add_path(*command, "--tokenizer", options->tokenizer, "PATH",
           "a run, an export, a prepared data set, a folder of Hugging Face's, a "
           "tokenizer.json, or `bytes`")
      ->required();
  auto* file = add_path(*command, "--file", options->file, "FILE",
                        "the text is in this file (-: standard input)")
                   ->excludes(text);
  auto* count = command->add_flag("--count", options->count, "print how many tokens, nothing else");
  auto* special = command->add_flag(
      "--special", options->special,
      "put the tokens around the text that models of this tokenizer want (Llama: begin-of-text)");
  command
      ->add_option("--ids", options->ids,
                   "the other way: the text of these ids (-: standard input)")
      ->type_name("ID,ID,...")
      ->excludes(text)
      ->excludes(file)
      ->excludes(count)
      ->excludes(special);
  add_json_flag(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace ballast::cli
