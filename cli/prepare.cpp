// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/prepare.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/progress.h"
#include "cli/commands.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFooter = R"(
Input
  A text file, a folder of text files, a .zst of one, - for standard input, or NAME=INPUT to give it
  a domain's name in reports. Documents in a file are separated by a line <|endoftext|>; a file
  without such lines is one document. The word `builtin` is the built-in corpus: endless synthetic
  text of several domains, whose entropy is known.

Validation
  --valid names validation text. Without it, each document goes to validation with the chance
  --valid-fraction, decided by its content, so that the same document always goes to the same side.
  If none goes there (say the input is one long file), the last part of the text is used instead.

Examples
  ballast prepare book.txt --out data/book
      bytes as tokens: nothing to train, works for any text
  ballast prepare corpus/ --out data/corpus --tokenizer bpe --vocab-size 8192
      a GPT-2 style vocabulary is trained on the text first
  ballast prepare new.txt --out data/new --tokenizer data/corpus
      with the vocabulary of another data set, or of a Hugging Face tokenizer.json
  ballast prepare wiki=wiki.zst code=src/ --out data/mixed --valid held_out/
  zcat big.gz | ballast prepare - --out data/big
  ballast prepare builtin --builtin-bytes 50MB --out data/builtin

Then train on it:  ballast train --data data/book
The folder's layout is described in docs/file_formats.md.)";

struct Options {
  PrepareRequest request;
  std::string out;
  bool overwrite = false;
  bool json = false;
};

const char* name_of(ValidationOrigin origin) {
  switch (origin) {
    case ValidationOrigin::kNone:
      return "none";
    case ValidationOrigin::kGiven:
      return "given";
    case ValidationOrigin::kDocuments:
      return "documents";
    case ValidationOrigin::kTail:
      return "tail";
  }
  throw std::invalid_argument("name_of: not a ValidationOrigin");
}

double bytes_per_token(const TextTotals& totals) {
  return static_cast<double>(totals.source_bytes) / static_cast<double>(totals.tokens);
}

Json to_json(const SplitIndex& split) {
  const TextTotals& totals = split.totals;
  Json object{{"documents", totals.documents},
              {"tokens", totals.tokens},
              {"source_bytes", totals.source_bytes},
              {"bytes_per_token", bytes_per_token(totals)},
              {"shards", split.shards.size()}};
  if (totals.nats) {
    object["floor_nats_per_token"] = *totals.nats / static_cast<double>(totals.tokens);
    object["floor_bits_per_byte"] =
        *totals.nats / std::numbers::ln2 / static_cast<double>(totals.source_bytes);
  }
  return object;
}

void print_json(const Options& options, const PrepareResult& result, double seconds) {
  const TokenizerIdentity& tokenizer = result.index.tokenizer;
  Json object{{"out", options.out},
              {"tokenizer",
               {{"kind", tokenizer.kind},
                {"vocabulary_size", tokenizer.vocabulary_size},
                {"end_of_text", tokenizer.end_of_text},
                {"fingerprint", checksum_hex(tokenizer.fingerprint)}}},
              {"domains", result.index.domains},
              {"validation", name_of(result.validation)},
              {"seconds", seconds}};
  for (const auto& [name, split] : result.index.splits) object["splits"][name] = to_json(split);
  fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string describe(const PrepareResult& result, const PrepareRequest& request) {
  const double fraction = request.valid_fraction;
  switch (result.validation) {
    case ValidationOrigin::kNone:
      return "none";
    case ValidationOrigin::kGiven:
      return request.valid_inputs.empty() ? "more of the same corpus" : "the text given for it";
    case ValidationOrigin::kDocuments:
      return fmt::format("{:g} % of the documents, chosen by a hash of their content",
                         100 * fraction);
    case ValidationOrigin::kTail:
      return fmt::format("the last {:g} % of the text (too few documents to choose among)",
                         100 * fraction);
  }
  throw std::invalid_argument("describe: not a ValidationOrigin");
}

void print_summary(const Options& options, const PrepareResult& result, double seconds) {
  const TokenizerIdentity& tokenizer = result.index.tokenizer;
  fmt::print("{} is ready ({}; tokenizer {}, vocabulary {})\n\n", options.out,
             format_duration(seconds), tokenizer.kind, tokenizer.vocabulary_size);
  fmt::print("{:8}{:>12}{:>12}{:>12}{:>13}{:>8}\n", "", "documents", "tokens", "text",
             "bytes/token", "files");
  for (const auto& [name, split] : result.index.splits) {
    const TextTotals& totals = split.totals;
    fmt::print("{:8}{:>12}{:>12}{:>12}{:>13.3f}{:>8}\n", name,
               format_count(static_cast<double>(totals.documents)),
               format_count(static_cast<double>(totals.tokens)),
               format_bytes(static_cast<double>(totals.source_bytes)), bytes_per_token(totals),
               split.shards.size());
  }
  fmt::print("\nvalidation     {}\n", describe(result, options.request));
  for (const auto& [name, split] : result.index.splits) {
    if (!split.totals.nats) continue;
    const Json floors = to_json(split);
    fmt::print(
        "entropy floor  {}: {:.4f} nats a token, {:.4f} bits a byte: the least a model can lose, "
        "on average\n",
        name, floors["floor_nats_per_token"].get<double>(),
        floors["floor_bits_per_byte"].get<double>());
  }
  fmt::print("next           ballast train --data {}\n", options.out);
}

void add_options(CLI::App& command, Options& o) {
  PrepareRequest& r = o.request;
  command.add_option("INPUT", r.inputs, "files, folders, -, NAME=INPUT, or builtin")
      ->required()
      ->type_name("");
  command.add_option("--out", o.out, "the folder to make")->required()->type_name("FOLDER");
  command.add_flag("--overwrite", o.overwrite, "replace a data set that is there already");
  command
      .add_option("--tokenizer", r.tokenizer,
                  "bytes; bpe: train one on the input; or a tokenizer.json, or a folder with one")
      ->capture_default_str()
      ->type_name("NAME|PATH");
  command.add_option("--vocab-size", r.vocabulary_size, "size of the vocabulary that bpe trains")
      ->capture_default_str()
      ->type_name("N");
  command
      .add_option("--vocab-sample", r.sample_bytes,
                  "bpe is trained on at most this much text, spread over the input")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("BYTES")
      ->default_str("100MB");
  command.add_option("--valid", r.valid_inputs, "validation text; give it again for more")
      ->type_name("INPUT")
      ->allow_extra_args(false);  // what follows is INPUT again
  command
      .add_option("--valid-fraction", r.valid_fraction,
                  "share of the input to validate on without --valid; 0: none")
      ->capture_default_str()
      ->type_name("X");
  command.add_option("--shard-tokens", r.shard_tokens, "most tokens in one file")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("N")
      ->default_str("100M");
  command.add_option("--threads", r.threads, "0: all cores")->capture_default_str()->type_name("N");
  command.add_option("--builtin-bytes", r.builtin_bytes, "size of the built-in corpus")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("BYTES")
      ->default_str("20MB");
  command.add_option("--seed", r.seed, "of the built-in corpus")
      ->capture_default_str()
      ->type_name("N");
  command.add_flag("--json", o.json, "print one JSON object, and nothing else, on stdout");
}

// Options that the others make meaningless are mistakes.
void check_options(const CLI::App& command, const Options& options) {
  const auto given = [&](const char* name) { return command.count(name) > 0; };
  const bool is_builtin = options.request.inputs == std::vector<std::string>{"builtin"};
  for (const char* name : {"--vocab-size", "--vocab-sample"}) {
    if (given(name) && options.request.tokenizer != "bpe") {
      fail("{} is for --tokenizer bpe; the tokenizer here is {}", name, options.request.tokenizer);
    }
  }
  for (const char* name : {"--builtin-bytes", "--seed"}) {
    if (given(name) && !is_builtin) fail("{} is for the input `builtin`", name);
  }
  if (given("--valid") && given("--valid-fraction")) {
    fail(
        "--valid names the validation text and --valid-fraction takes it from the input: give one");
  }
}

}  // namespace

void add_prepare(CLI::App& app, Action& chosen) {
  CLI::App* command =
      app.add_subcommand("prepare", "Turn text into token files to train and evaluate on");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->footer(kFooter);
  command->callback([command, options, &chosen] {
    chosen = [command, options] {
      using Clock = std::chrono::steady_clock;
      check_options(*command, *options);
      PrepareRequest request = options->request;
      request.out = options->out;
      request.existing = options->overwrite ? ExistingOutput::kReplace : ExistingOutput::kRefuse;
      const auto start = Clock::now();
      const PrepareResult result = prepare(request);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      options->json ? print_json(*options, result, seconds)
                    : print_summary(*options, result, seconds);
      return 0;
    };
  });
}

}  // namespace ballast::cli
