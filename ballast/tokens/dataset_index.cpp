// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/system/number_from.h"
#include "ballast/tokens/token_dataset.h"

namespace ballast::tokens {
namespace {

using nlohmann::json;                 // read
using Json = nlohmann::ordered_json;  // written

constexpr const char* kFormat = "ballast-tokens";
constexpr uint32_t kVersion = 1;
// The checksum is the last key and covers every byte before this, so any program can check it.
constexpr std::string_view kChecksumKey = ",\n  \"checksum\": \"";

uint64_t parse_hex(const std::string& text) {
  const auto value = number_from<uint64_t>(text, /*base=*/16);
  if (!value || text.size() != 16) {
    throw std::invalid_argument("\"" + text + "\" is not a 16-digit hexadecimal number");
  }
  return *value;
}

void check_file_name(const std::string& name) {
  if (name.empty() || std::filesystem::path(name).filename() != name)
    throw std::invalid_argument("file \"" + name + "\" is not a plain name");
}

template <typename Number>
Number number(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<Number>::max()) {
    throw std::invalid_argument(std::string(key) + " is not a count");
  }
  return value.get<Number>();
}

void put_totals(Json& object, const TextTotals& totals) {
  object["documents"] = totals.documents;
  object["tokens"] = totals.tokens;
  object["source_bytes"] = totals.source_bytes;
  if (totals.nats) object["nats"] = *totals.nats;
}

TextTotals get_totals(const json& object) {
  TextTotals totals{.documents = number<uint64_t>(object, "documents"),
                    .tokens = number<uint64_t>(object, "tokens"),
                    .source_bytes = number<uint64_t>(object, "source_bytes"),
                    .nats = std::nullopt};
  if (object.contains("nats")) totals.nats = object.at("nats").get<double>();
  return totals;
}

Json put_split(const SplitIndex& split, const std::vector<std::string>& domains) {
  Json object;
  put_totals(object, split.totals);
  Json& rows = object["domains"] = Json::array();
  for (size_t i = 0; i < domains.size(); ++i) {
    put_totals(rows.emplace_back(Json{{"name", domains[i]}}), split.domains.at(i));
  }
  Json& shards = object["shards"] = Json::array();
  for (const ShardEntry& shard : split.shards) {
    shards.push_back({{"file", shard.file},
                      {"tokens", shard.counts.tokens},
                      {"documents", shard.counts.documents},
                      {"parts", shard.counts.parts},
                      {"source_bytes", shard.counts.source_bytes},
                      {"checksum", checksum_hex(shard.counts.checksum)}});
  }
  return object;
}

SplitIndex get_split(const json& object, const std::vector<std::string>& domains) {
  SplitIndex split{.totals = get_totals(object), .domains = {}, .shards = {}};
  for (const json& row : object.at("domains")) {
    if (split.domains.size() >= domains.size() ||
        row.at("name").get<std::string>() != domains[split.domains.size()]) {
      throw std::invalid_argument("a split's domains are not those of the data set");
    }
    split.domains.push_back(get_totals(row));
  }
  if (split.domains.size() != domains.size()) throw std::invalid_argument("a domain is missing");
  uint64_t tokens = 0, documents = 0, source_bytes = 0;
  for (const json& row : object.at("shards")) {
    const ShardEntry& shard = split.shards.emplace_back(
        ShardEntry{.file = row.at("file").get<std::string>(),
                   .counts = {.tokens = number<uint64_t>(row, "tokens"),
                              .documents = number<uint64_t>(row, "documents"),
                              .parts = number<uint64_t>(row, "parts"),
                              .source_bytes = number<uint64_t>(row, "source_bytes"),
                              .checksum = parse_hex(row.at("checksum").get<std::string>())}});
    check_file_name(shard.file);
    tokens += shard.counts.tokens;
    documents += shard.counts.documents;
    source_bytes += shard.counts.source_bytes;
  }
  if (tokens != split.totals.tokens || documents != split.totals.documents ||
      source_bytes != split.totals.source_bytes) {
    throw std::invalid_argument("a split's shards do not add up to its totals");
  }
  return split;
}

DatasetIndex get_index(const json& object) {
  DatasetIndex index;
  const json& tokenizer = object.at("tokenizer");
  index.tokenizer = {.kind = tokenizer.at("kind").get<std::string>(),
                     .vocabulary_size = number<uint32_t>(tokenizer, "vocabulary_size"),
                     .end_of_text = number<uint32_t>(tokenizer, "end_of_text"),
                     .fingerprint = parse_hex(tokenizer.at("fingerprint").get<std::string>())};
  for (const json& row : tokenizer.value("files", json::array())) {
    index.tokenizer_files.push_back(
        {row.at("file").get<std::string>(), parse_hex(row.at("checksum").get<std::string>())});
    check_file_name(index.tokenizer_files.back().file);
  }
  index.is_framed = tokenizer.value("framed", false);
  index.domains = object.at("domains").get<std::vector<std::string>>();
  for (const auto& [name, split] : object.at("splits").items()) {
    index.splits[name] = get_split(split, index.domains);
  }
  return index;
}

}  // namespace

std::string DatasetIndex::to_text() const {
  Json object;
  object["format"] = kFormat;
  object["version"] = kVersion;
  object["tokenizer"] = {{"kind", tokenizer.kind},
                         {"vocabulary_size", tokenizer.vocabulary_size},
                         {"end_of_text", tokenizer.end_of_text},
                         {"fingerprint", checksum_hex(tokenizer.fingerprint)}};
  for (const TokenizerFile& file : tokenizer_files) {
    object["tokenizer"]["files"].push_back(
        {{"file", file.file}, {"checksum", checksum_hex(file.checksum)}});
  }
  if (is_framed) object["tokenizer"]["framed"] = true;
  object["token_dtype"] = tokenizer.token_bytes() == 2 ? "uint16" : "uint32";
  object["domains"] = domains;
  for (const auto& [name, split] : splits) object["splits"][name] = put_split(split, domains);
  // File names, from which domains are named, may be any bytes: those that are not UTF-8 are
  // replaced.
  std::string text = object.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - std::string_view("\n}").size());
  const std::string sum = checksum_hex(checksum(text));
  return text + std::string(kChecksumKey) + sum + "\"\n}\n";
}

DatasetIndex DatasetIndex::from_text(std::string_view text, const std::filesystem::path& path) {
  const auto refuse = [&](std::string_view why) {
    fail("{} is damaged or not an index of `ballast prepare`: {}", path.string(), why);
  };
  try {
    const json object = parse_json(text);
    if (!object.is_object() || object.value("format", "") != kFormat) {
      refuse(fmt::format("its format is not \"{}\"", kFormat));
    }
    if (const auto version = number<uint32_t>(object, "version"); version != kVersion) {
      fail("{} has version {}; this program reads version {}: prepare the data again",
           path.string(), version, kVersion);
    }
    const size_t end = text.rfind(kChecksumKey);
    if (end == std::string_view::npos || object.at("checksum").get<std::string>() !=
                                             checksum_hex(ballast::checksum(text.substr(0, end)))) {
      refuse(
          "it was changed since it was written (its checksum does not fit); prepare the data "
          "again");
    }
    return get_index(object);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  throw std::logic_error("unreachable");
}

}  // namespace ballast::tokens
