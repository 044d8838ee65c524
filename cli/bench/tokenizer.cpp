// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/parallel.h"
#include "ballast/system/progress.h"
#include "ballast/tokenizer/bpe_trainer.h"
#include "cli/bench/benchmarks.h"
#include "cli/bench/median.h"
#include "cli/bench/options.h"
#include "cli/command.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string tokenizer = "bytes", text, save;
  bool train = false, print_ids = false;
  tokenizer::TokenId vocabulary_size = 8192;
  size_t document_bytes = 0;
  BenchOptions bench = {.threads = 1, .rounds = 5};
};

constexpr const char* kExamples = R"(
Examples
  How fast does this tokenizer encode, one thread, documents of about 4 kB?
    ballast bench tokenizer --tokenizer gpt2/ --text corpus.txt --document-bytes 4096
  Train a vocabulary of 8192 tokens on a text, time it, keep it:
    ballast bench tokenizer --train --vocab-size 8192 --text corpus.txt --save my_tokenizer
  The token ids of a text, for another program:
    ballast bench tokenizer --tokenizer my_tokenizer --text note.txt --print-ids

JSON keys (--json): tokenizer, vocabulary_size, fingerprint, text_bytes, threads, tokens,
bytes_per_token; encoding also: documents, encode_seconds, encode_bytes_per_second, decode_seconds,
  decode_bytes_per_second, round_trip (decoding gives the text back);
training also: count_seconds, merge_seconds, train_seconds (both together).
Seconds are medians over --rounds. --print-ids gives text_bytes, tokens and ids instead.
)";

// Documents of at least `bytes` bytes, each ending with a line; 0: the text is one document.
std::vector<std::string_view> cut_documents(std::string_view text, size_t bytes) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    size_t size = text.size();
    if (bytes > 0 && bytes < size) size = std::min(text.find('\n', bytes - 1), size - 1) + 1;
    documents.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return documents;
}

// Parts of about 1 MB for threads to count, cut where every pre-tokenizer cuts: between an ASCII
// character that is no white space and a space.
std::vector<std::string_view> cut_for_threads(const std::vector<std::string_view>& documents) {
  std::vector<std::string_view> parts;
  for (std::string_view rest : documents) {
    for (size_t i = 1 << 20; i < rest.size(); ++i) {
      if (rest[i] != ' ' || rest[i - 1] <= ' ' || rest[i - 1] > '~') continue;
      parts.push_back(rest.substr(0, i));
      rest.remove_prefix(i);
      i = 1 << 20;
    }
    parts.push_back(rest);
  }
  return parts;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print(const Options& options, const Json& result) {
  if (options.bench.json || options.print_ids) {
    fmt::print("{}\n", result.dump());
    return;
  }
  for (const auto& [key, value] : result.items()) {
    const bool is_rate = key.ends_with("bytes_per_second");
    fmt::print("{:24} {}\n", key,
               is_rate                   ? format_bytes(value.get<double>()) + "/s"
               : value.is_string()       ? value.get<std::string>()
               : value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
                                         : value.dump());
  }
}

Json describe(const tokenizer::Tokenizer& tokenizer) {
  return {{"tokenizer", tokenizer.kind()},
          {"vocabulary_size", tokenizer.vocabulary_size()},
          {"fingerprint", checksum_hex(tokenizer.fingerprint())}};
}

Json print_ids(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<tokenizer::TokenId> ids;
  tokenizer.encode(text, ids);
  return {{"text_bytes", text.size()}, {"tokens", ids.size()}, {"ids", std::move(ids)}};
}

Json bench_encode(const Options& options, const tokenizer::Tokenizer& tokenizer,
                  std::string_view text) {
  const size_t threads = options.bench.num_threads();
  const auto documents = cut_documents(text, options.document_bytes);
  std::vector<std::vector<tokenizer::TokenId>> ids(documents.size());
  std::vector<std::string> decoded(documents.size());
  std::vector<double> encode, decode;
  const auto each_document = [&](const std::function<void(size_t)>& work) {
    return seconds_of([&] { parallel_for(documents.size(), threads, work); });
  };
  for (int64_t round = 0; round < options.bench.rounds; ++round) {
    encode.push_back(each_document([&](size_t i) {
      ids[i].clear();
      tokenizer.encode(documents[i], ids[i]);
    }));
    decode.push_back(each_document([&](size_t i) { decoded[i] = tokenizer.decode_text(ids[i]); }));
  }
  size_t tokens = 0;
  for (const auto& document : ids) tokens += document.size();
  Json result = describe(tokenizer);
  result.update({{"text_bytes", text.size()},
                 {"documents", documents.size()},
                 {"threads", threads},
                 {"tokens", tokens},
                 {"bytes_per_token", double(text.size()) / double(tokens)},
                 {"encode_seconds", median(encode)},
                 {"encode_bytes_per_second", double(text.size()) / median(encode)},
                 {"decode_seconds", median(decode)},
                 {"decode_bytes_per_second", double(text.size()) / median(decode)},
                 {"round_trip", std::equal(documents.begin(), documents.end(), decoded.begin())}});
  return result;
}

Json bench_train(const Options& options, std::string_view text) {
  const size_t threads = options.bench.num_threads();
  const auto pieces = cut_for_threads(cut_documents(text, options.document_bytes));
  std::vector<double> count, merge, total;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  for (int64_t round = 0; round < options.bench.rounds; ++round) {
    tokenizer::BpeTrainer trainer;
    count.push_back(seconds_of(
        [&] { parallel_for(pieces.size(), threads, [&](size_t i) { trainer.add(pieces[i]); }); }));
    merge.push_back(seconds_of([&] { tokenizer = trainer.train(options.vocabulary_size); }));
    total.push_back(count.back() + merge.back());
  }
  if (!options.save.empty()) tokenizer->save(options.save);
  std::vector<tokenizer::TokenId> ids;
  tokenizer->encode(text, ids);
  Json result = describe(*tokenizer);
  result.update({{"text_bytes", text.size()},
                 {"threads", threads},
                 {"count_seconds", median(count)},
                 {"merge_seconds", median(merge)},
                 {"train_seconds", median(total)},
                 {"tokens", ids.size()},
                 {"bytes_per_token", double(text.size()) / double(ids.size())}});
  return result;
}

int run(const Options& options) {
  const MappedFile file(options.text);
  if (file.text().empty()) fail("{} is empty: there is nothing to measure", options.text);
  if (options.train) {
    print(options, bench_train(options, file.text()));
    return 0;
  }
  const auto tokenizer = tokenizer::load_tokenizer(options.tokenizer);
  if (!options.save.empty()) tokenizer->save(options.save);
  print(options, options.print_ids ? print_ids(*tokenizer, file.text())
                                   : bench_encode(options, *tokenizer, file.text()));
  return 0;
}

}  // namespace

void add_bench_tokenizer(CLI::App& app, Action& chosen) {
  CLI::App* command =
      add_command(app, "tokenizer",
                  "Measure (or just use) a tokenizer: encode, decode, train, print ids", kExamples);
  const auto options = std::make_shared<Options>();
  command->add_option("--text", options->text, "The text file, any bytes")->required();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "`bytes`, a tokenizer.json, or a folder with tokenizer.json or vocab.json and "
                   "merges.txt")
      ->capture_default_str();
  auto* train = command->add_flag("--train", options->train, "Train a BPE on the text instead");
  command
      ->add_option("--vocab-size", options->vocabulary_size,
                   "Tokens to train, end-of-text included (at least 257)")
      ->capture_default_str()
      ->needs(train);
  command->add_option("--save", options->save,
                      "Write the tokenizer to this folder: tokenizer.json, and what belongs to it");
  command
      ->add_option(
          "--document-bytes", options->document_bytes,
          "Cut the text into documents of at least this size, at line ends (0: one document)")
      ->capture_default_str();
  add_bench_options(*command, options->bench);
  command
      ->add_flag("--print-ids", options->print_ids,
                 "Print the ids of the whole text as JSON; measure nothing")
      ->excludes(train);
  command->callback([command, options, &chosen] {
    // Training takes all cores, unless it is told how many.
    if (options->train && command->count("--threads") == 0) options->bench.threads = 0;
    chosen = [options] { return run(*options); };
  });
}

}  // namespace ballast::cli
