// SPDX-License-Identifier: Apache-2.0
#include "cli/prepare_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>
#include <string>

#include "ballast/system/checksum.h"
#include "ballast/system/progress.h"
#include "ballast/system/utf8.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownSkipped = 20;  // of files that were skipped; --json has all
constexpr size_t kShownDomains = 20;

const char* name_of(tokens::ValidationOrigin origin) {
  switch (origin) {
    case tokens::ValidationOrigin::kNone:
      return "none";
    case tokens::ValidationOrigin::kGiven:
      return "given";
    case tokens::ValidationOrigin::kNamed:
      return "named";
    case tokens::ValidationOrigin::kDocuments:
      return "documents";
    case tokens::ValidationOrigin::kTail:
      return "tail";
  }
  throw std::invalid_argument("name_of: not a ValidationOrigin");
}

double bytes_per_token(const tokens::TextTotals& totals) {
  return static_cast<double>(totals.source_bytes) / static_cast<double>(totals.tokens);
}

Json to_json(const tokens::SplitIndex& split) {
  const tokens::TextTotals& totals = split.totals;
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

std::string describe_validation(const PrepareReport& report) {
  const double percent = 100 * report.request.valid_fraction;
  switch (report.result.validation) {
    case tokens::ValidationOrigin::kNone:
      return "none";
    case tokens::ValidationOrigin::kGiven:
      return report.request.valid_inputs.empty() ? "more of the same corpus"
                                                 : "the text given for it";
    case tokens::ValidationOrigin::kNamed:
      return "the files that are named so";
    case tokens::ValidationOrigin::kDocuments:
      return fmt::format("{:g} % of the documents, chosen by a hash of their content", percent);
    case tokens::ValidationOrigin::kTail:
      return fmt::format("the last {:g} % of the text (too few documents to choose among)",
                         percent);
  }
  throw std::invalid_argument("describe_validation: not a ValidationOrigin");
}

std::string count(uint64_t number) { return format_count(static_cast<double>(number)); }
std::string files(uint64_t number) { return count(number) + (number == 1 ? " file" : " files"); }

void print_row(const std::string& name, const std::string& from, const tokens::TextTotals& totals) {
  fmt::print("{:8}{:>8}{:>12}{:>12}{:>12}{:>13.3f}", name, from, count(totals.documents),
             count(totals.tokens), format_bytes(static_cast<double>(totals.source_bytes)),
             bytes_per_token(totals));
}

void print_splits(const tokens::PrepareResult& result) {
  fmt::print("{:8}{:>8}{:>12}{:>12}{:>12}{:>13}{:>8}\n", "", "files", "documents", "tokens", "text",
             "bytes/token", "shards");
  for (const auto& [name, split] : result.index.splits) {
    const auto from = result.input_files.find(name);
    print_row(name, from == result.input_files.end() ? "-" : count(from->second), split.totals);
    fmt::print("{:>8}\n", split.shards.size());
  }
}

// Their texts, over all splits.
void print_domains(const tokens::DatasetIndex& index) {
  if (index.domains.size() < 2) return;
  fmt::print("\n{:>12}{:>12}{:>12}  domain\n", "documents", "tokens", "text");
  for (size_t i = 0; i < index.domains.size(); ++i) {
    if (i == kShownDomains) {
      fmt::print("{:>36}  ... and {} more (in index.json)\n", "", index.domains.size() - i);
      return;
    }
    tokens::TextTotals sum;
    for (const auto& [name, split] : index.splits) {
      sum.documents += split.domains[i].documents;
      sum.tokens += split.domains[i].tokens;
      sum.source_bytes += split.domains[i].source_bytes;
    }
    fmt::print("{:>12}{:>12}{:>12}  {}\n", count(sum.documents), count(sum.tokens),
               format_bytes(static_cast<double>(sum.source_bytes)), printable(index.domains[i]));
  }
}

void print_skipped(const tokens::PrepareResult& result) {
  if (result.empty_documents > 0)
    fmt::print("skipped        {} {} without any text\n", count(result.empty_documents),
               result.empty_documents == 1 ? "document" : "documents");
  if (result.skipped.empty()) return;
  fmt::print("skipped        {}\n", files(result.skipped.size()));
  for (size_t i = 0; i < result.skipped.size(); ++i) {
    if (i == kShownSkipped) {
      fmt::print("  ... and {} more (--json names all)\n", result.skipped.size() - i);
      return;
    }
    const text::SkippedFile& file = result.skipped[i];
    fmt::print("  {} is {}\n", printable(file.path.string()), file.reason);
  }
}

void print_named(const tokens::PrepareResult& result) {
  std::string splits;
  for (const auto& [split, number] : result.named_files)
    splits += fmt::format("{}{} {}", splits.empty() ? "" : ", ", split, files(number));
  if (splits.empty()) return;
  fmt::print("by name        {} (--ignore-split-names: they tell nothing)\n", splits);
}

}  // namespace

void print_prepare_json(const PrepareReport& report) {
  const tokens::PrepareResult& result = report.result;
  const tokens::TokenizerIdentity& tokenizer = result.index.tokenizer;
  Json object{{"out", report.request.out.string()},
              {"tokenizer",
               {{"kind", tokenizer.kind},
                {"vocabulary_size", tokenizer.vocabulary_size},
                {"end_of_text", tokenizer.end_of_text},
                {"fingerprint", checksum_hex(tokenizer.fingerprint)}}},
              {"domains", result.index.domains},
              {"validation", name_of(result.validation)},
              {"seconds", report.seconds}};
  for (const auto& [name, split] : result.index.splits) {
    Json& row = object["splits"][name] = to_json(split);
    const auto from = result.input_files.find(name);
    if (from != result.input_files.end()) row["input_files"] = from->second;
  }
  object["named_files"] = Json::object();
  for (const auto& [split, number] : result.named_files) object["named_files"][split] = number;
  object["empty_documents"] = result.empty_documents;
  Json& skipped = object["skipped"] = Json::array();
  for (const text::SkippedFile& file : result.skipped)
    skipped.push_back({{"file", file.path.string()}, {"reason", file.reason}});
  fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void print_prepare_summary(const PrepareReport& report) {
  const tokens::PrepareResult& result = report.result;
  const tokens::TokenizerIdentity& tokenizer = result.index.tokenizer;
  const std::string out = report.request.out.string();
  fmt::print("{} is ready ({}; tokenizer {}, vocabulary {})\n\n", out,
             format_duration(report.seconds), tokenizer.kind, tokenizer.vocabulary_size);
  print_splits(result);
  print_domains(result.index);
  fmt::print("\n");
  print_named(result);
  print_skipped(result);
  fmt::print("validation     {}\n", describe_validation(report));
  for (const auto& [name, split] : result.index.splits) {
    if (!split.totals.nats) continue;
    const Json floors = to_json(split);
    fmt::print(
        "entropy floor  {}: {:.4f} nats a token, {:.4f} bits a byte: the least a model can lose, "
        "on average\n",
        name, floors["floor_nats_per_token"].get<double>(),
        floors["floor_bits_per_byte"].get<double>());
  }
  fmt::print("next           ballast train --data {}\n", out);
}

}  // namespace ballast::cli
