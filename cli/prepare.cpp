// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/prepare.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ballast/system/error.h"
#include "ballast/system/number_from.h"
#include "ballast/system/progress.h"
#include "ballast/system/stop_signal.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/output_options.h"
#include "cli/prepare_report.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Input
  A file, a folder of files, - for standard input, or NAME=INPUT to give it a domain's name in
  reports. The word `builtin` is the built-in corpus: endless synthetic text of several domains,
  whose entropy is known.
    text             documents are separated by a line <|endoftext|>; a file without such lines is
                     one document
    .jsonl           each line is a document: the string --field of a JSON object
    .parquet         each row is a document: the string in the column --field
    .gz, .zst        of any of these but .parquet, as in wiki.jsonl.gz
  What is not text (binary, images, PDF, archives, pickles, not UTF-8) is refused by name. Within a
  folder it is skipped, as are empty and hidden files; the summary says what and why.

Splits
  A file with the word train, valid (val, validation) or test in its name, or in that of a folder
  below the input, goes to that split: wiki.valid.txt, test/a.jsonl. --ignore-split-names takes
  them as they come. Where all files are named valid or test, names tell nothing.
  --valid names validation text. Without it, and without files named so, each document goes to
  validation with the chance --valid-fraction, decided by its content, so that the same document
  always goes to the same side. If none goes there (say the input is one long file), the last part
  of the text is used instead.

Examples
  ballast prepare book.txt --out data/book
      bytes as tokens: nothing to train, works for any text
  ballast prepare corpus/ --out data/corpus --tokenizer bpe --vocab-size 8192
      a GPT-2 style vocabulary is trained on the text first
  ballast prepare new.txt --out data/new --tokenizer data/corpus
      with the vocabulary of another data set, or of a Hugging Face tokenizer.json
  ballast prepare wiki=wiki.zst code=src/ --out data/mixed --valid held_out/ more.txt
  ballast prepare c4/*.jsonl.gz --field text --out data/c4
  ballast prepare pile/ --domains folder --out data/pile
      pile/code/..., pile/law/...: reports tell how each domain does
  xzcat big.jsonl.xz | ballast prepare - --format jsonl --out data/big
  ballast prepare builtin --builtin-bytes 50MB --out data/builtin
  ballast prepare --verify data/book
      whether every file is as it was written

Then train on it:  ballast train --data data/book
More on input: docs/data.md. The folder's layout, and the keys of --json: docs/file_formats.md.)";

const std::map<std::string, text::TextFormat> kFormats = {
    {"auto", text::TextFormat::kByName},
    {"text", text::TextFormat::kPlain},
    {"jsonl", text::TextFormat::kJsonLines},
    {"parquet", text::TextFormat::kParquet},
};
const std::map<std::string, text::DomainsBy> kDomains = {
    {"input", text::DomainsBy::kInput},
    {"file", text::DomainsBy::kFile},
    {"folder", text::DomainsBy::kFolder},
};

struct Options {
  tokens::PrepareRequest request;
  std::string out;
  std::string verify;
  std::string format = "auto", domains = "input";
  bool ignore_split_names = false;
  bool unframed = false;
  bool overwrite = false;
  bool json = false;
};

std::optional<double> unit_named(const std::string& name) {
  if (name.empty() || name == "b") return 1;
  const size_t power = std::string_view("kmgtp").find(name[0]) + 1;  // 0: none of them
  const std::string_view rest = std::string_view(name).substr(1);
  if (power == 0) return std::nullopt;
  if (rest.empty() || rest == "b") return std::pow(1000, power);
  return rest == "i" || rest == "ib" ? std::optional(std::pow(1024, power)) : std::nullopt;
}

// 1000000, 1_000_000, 1e6, 1M, 1.5GB, 64KiB.
std::optional<uint64_t> parse_count(std::string text) {
  std::erase(text, '_');
  if (const auto whole = number_from<uint64_t>(text)) return whole;
  const char* const last = text.data() + text.size();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc()) return std::nullopt;
  const auto unit =
      unit_named(CLI::detail::to_lower(CLI::detail::trim_copy(std::string(end, last))));
  number *= unit.value_or(NAN);
  // Beyond 2^53 not every whole number is a double.
  if (!(number >= 0 && number <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<uint64_t>(number);
}

CLI::Validator count_of_at_least(uint64_t least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        const auto count = parse_count(text);
        if (!count || *count < least) {
          return fmt::format("{} is not a whole number of at least {}, such as 20000, 1e6 or 50M",
                             text, least);
        }
        text = std::to_string(*count);
        return "";
      },
      "");
}

void add_reading_options(CLI::App& command, Options& o) {
  command.add_option("--field", o.request.field, "the text's name in .jsonl and .parquet")
      ->capture_default_str()
      ->type_name("NAME");
  command
      .add_option("--format", o.format,
                  "how all input is read: auto (by its names), text, jsonl or parquet")
      ->check(CLI::IsMember(kFormats))
      ->capture_default_str()
      ->type_name("NAME");
  command
      .add_option("--domains", o.domains,
                  "what is a domain in reports: each input, each file below a folder, or each "
                  "folder right below one")
      ->check(CLI::IsMember(kDomains))
      ->capture_default_str()
      ->type_name("input|file|folder");
  command.add_flag("--ignore-split-names", o.ignore_split_names,
                   "train, valid and test in names of files tell nothing");
}

void add_options(CLI::App& command, Options& o) {
  tokens::PrepareRequest& r = o.request;
  command.add_option("INPUT", r.inputs, "files, folders, -, NAME=INPUT, or builtin")->type_name("");
  command.add_option("--out", o.out, "the folder to make")->type_name("FOLDER");
  command.add_flag("--overwrite", o.overwrite, "replace a data set that is there already");
  command
      .add_option("--tokenizer", r.tokenizer,
                  "bytes; bpe: train one on the input; or a tokenizer.json, or a folder with one")
      ->capture_default_str()
      ->type_name("NAME|PATH");
  command.add_option("--vocab-size", r.vocabulary_size, "size of the vocabulary that bpe trains")
      ->transform(count_of_at_least(1))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--vocab-sample", r.sample_bytes,
                  "bpe is trained on at most this much text, spread over the input")
      ->transform(count_of_at_least(1))
      ->type_name("BYTES")
      ->default_str("100MB");
  command.add_flag("--unframed", o.unframed,
                   "documents without the begin and end tokens that the tokenizer's template puts "
                   "around a text, such as Llama's");
  // All that follows is validation text, as a shell's *.txt gives it.
  command
      .add_option("--valid", r.valid_inputs, "validation text: all inputs up to the next option")
      ->type_name("INPUT ...");
  command
      .add_option("--valid-fraction", r.valid_fraction,
                  "share of the input to validate on without --valid; 0: none")
      ->capture_default_str()
      ->type_name("X");
  add_reading_options(command, o);
  command.add_option("--shard-tokens", r.shard_tokens, "most tokens in one file")
      ->transform(count_of_at_least(1024))
      ->type_name("N")
      ->default_str("100M");
  command.add_option("--threads", r.threads, "0: all cores")
      ->transform(count_of_at_least(0))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--builtin-bytes", r.builtin_bytes, "size of the built-in corpus")
      ->transform(count_of_at_least(1))
      ->type_name("BYTES")
      ->default_str("20MB");
  command.add_option("--seed", r.seed, "of the built-in corpus")
      ->transform(count_of_at_least(0))
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--verify", o.verify,
                  "make nothing: read all of the data set in this folder and check it")
      ->type_name("FOLDER");
  add_json_flag(command, o.json);
}

// Options that the others make meaningless are mistakes.
void check_options(const CLI::App& command, const Options& options) {
  const auto given = [&](const char* name) { return command.count(name) > 0; };
  if (!given("INPUT") && given("--valid")) {
    fail(
        "INPUT is required: name files, folders or - before --valid, which takes all that follows "
        "it up to the next option");
  }
  if (!given("INPUT")) fail("INPUT is required: name files, folders, - or builtin");
  if (!given("--out")) fail("--out is required: name the folder to make");
  const bool is_builtin = options.request.inputs == std::vector<std::string>{"builtin"};
  for (const char* name : {"--vocab-size", "--vocab-sample"}) {
    if (given(name) && options.request.tokenizer != "bpe") {
      fail("{} is for --tokenizer bpe; the tokenizer here is {}", name, options.request.tokenizer);
    }
  }
  for (const char* name : {"--field", "--format", "--domains", "--ignore-split-names"}) {
    if (given(name) && is_builtin) fail("{} is for text of your own, not for `builtin`", name);
  }
  for (const char* name : {"--builtin-bytes", "--seed"}) {
    if (given(name) && !is_builtin) fail("{} is for the input `builtin`", name);
  }
  if (given("--valid") && given("--valid-fraction")) {
    fail(
        "--valid names the validation text and --valid-fraction takes it from the input: give one");
  }
}

void verify(const CLI::App& command, const Options& options) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != "--verify" && name != "--json" && !is_output_option(name)) {
      fail("--verify makes nothing: leave out {}", name);
    }
  }
  const tokens::TokenDataset data(options.verify);
  data.verify();
  uint64_t tokens = 0;
  size_t files = 0;
  for (const auto& [name, split] : data.index().splits) {
    tokens += split.totals.tokens;
    files += split.shards.size();
  }
  if (options.json) {
    fmt::print("{}\n",
               Json{{"verified", true}, {"tokens", tokens}, {"bytes", data.bytes()}}.dump());
  } else {
    fmt::print("{} is ok: {} tokens in {} files, {}\n", options.verify,
               format_count(static_cast<double>(tokens)), files,
               format_bytes(static_cast<double>(data.bytes())));
  }
}

void make(const Options& options) {
  using Clock = std::chrono::steady_clock;
  tokens::PrepareRequest request = options.request;
  request.out = options.out;
  request.existing =
      options.overwrite ? tokens::ExistingOutput::kReplace : tokens::ExistingOutput::kRefuse;
  request.reading = {.format = kFormats.at(options.format),
                     .domains = kDomains.at(options.domains),
                     .split_names = options.ignore_split_names ? text::SplitNames::kIgnored
                                                               : text::SplitNames::kObeyed};
  if (options.unframed) request.framing = tokenizer::Framing::kPlain;
  const StopSignal stop;
  request.stop_requested = [&] { return stop.requested(); };
  const auto start = Clock::now();
  const tokens::PrepareResult result = tokens::prepare(request);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const PrepareReport report{request, result, seconds};
  options.json ? print_prepare_json(report) : print_prepare_summary(report);
}

}  // namespace

void add_prepare(CLI::App& app, Action& chosen) {
  CLI::App* command =
      add_command(app, "prepare", "Turn text into token files to train and evaluate on", kFooter);
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &chosen] {
    chosen = [command, options] {
      if (command->count("--verify") > 0) {
        verify(*command, *options);
      } else {
        check_options(*command, *options);
        make(*options);
      }
      return 0;
    };
  });
}

}  // namespace ballast::cli
