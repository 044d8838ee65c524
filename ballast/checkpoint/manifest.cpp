// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"

namespace ballast::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "ballast-checkpoint";
constexpr std::string_view kChecksumKey = "\"checksum\": \"";
constexpr std::string_view kNoChecksum = "0000000000000000";

std::string quoted(const std::string& text) { return json(text).dump(); }

// The checksum of a text that has kNoChecksum where its own checksum will stand.
std::string own_checksum(const std::string& text) { return checksum_hex(checksum(text)); }

std::string entry_text(const TensorEntry& entry) {
  return fmt::format(R"({{"name":{},"file":{},"dtype":"{}","shape":[{}],"checksum":"{}"}})",
                     quoted(entry.name), quoted(entry.file), dtype_name(entry.dtype),
                     fmt::join(entry.shape, ","), checksum_hex(entry.checksum));
}

uint64_t parse_checksum(const std::string& text) {
  size_t used = 0;
  const uint64_t value = std::stoull(text, &used, 16);
  if (checksum_hex(value) != text) throw std::invalid_argument("not a checksum: " + text);
  return value;
}

// Throws json::exception or std::invalid_argument if a field is missing or of another type.
TensorEntry parse_entry(const json& object) {
  TensorEntry entry;
  entry.name = object.at("name").get<std::string>();
  entry.file = object.at("file").get<std::string>();
  const auto dtype = parse_dtype(object.at("dtype").get<std::string>());
  if (!dtype) throw std::invalid_argument("unknown dtype of " + entry.name);
  entry.dtype = *dtype;
  const json& shape = object.at("shape");
  if (!shape.is_array()) throw std::invalid_argument("no shape of " + entry.name);
  for (const json& size : shape) {
    if (!size.is_number_integer()) throw std::invalid_argument("no shape of " + entry.name);
    entry.shape.push_back(size.get<int64_t>());
  }
  entry.checksum = parse_checksum(object.at("checksum").get<std::string>());
  return entry;
}

std::vector<TensorEntry> read_entries(const json& array) {
  if (!array.is_array()) throw std::invalid_argument("its list of tensors is not a list");
  std::vector<TensorEntry> entries;
  std::set<std::string> names;
  entries.reserve(array.size());
  for (const json& object : array) {
    entries.push_back(parse_entry(object));
    if (!names.insert(entries.back().name).second) {
      throw std::invalid_argument("two tensors named " + entries.back().name);
    }
  }
  return entries;
}

std::vector<DataEntry> read_data(const json& root) {
  std::vector<DataEntry> data;
  for (const json& entry : root.value("data", json::array())) {
    data.push_back({entry.at("role").get<std::string>(), entry.at("name").get<std::string>(),
                    entry.at("fingerprint").get<std::string>()});
  }
  return data;
}

std::string data_text(const std::vector<DataEntry>& data) {
  std::vector<std::string> lines;
  for (const DataEntry& entry : data) {
    lines.push_back(fmt::format(R"(    {{"role":{},"name":{},"fingerprint":{}}})",
                                quoted(entry.role), quoted(entry.name), quoted(entry.fingerprint)));
  }
  return lines.empty() ? "" : fmt::format("  \"data\": [\n{}\n  ],\n", fmt::join(lines, ",\n"));
}

uint64_t unsigned_at(const json& root, const std::string& key) {
  const json& value = root.at(key);
  if (!value.is_number_unsigned()) throw std::invalid_argument(key + " is not a count");
  return value.get<uint64_t>();
}

Manifest parse_fields(const json& root) {
  Manifest manifest;
  manifest.step = unsigned_at(root, "step");
  manifest.data_position = unsigned_at(root, "data_position");
  manifest.program_version = root.at("program_version").get<std::string>();
  manifest.config = root.at("config").get<std::string>();
  if (!root.at("state").is_object()) throw std::invalid_argument("state is not an object");
  manifest.state = root.at("state").dump();
  manifest.data = read_data(root);
  manifest.tensors = read_entries(root.at("tensors"));
  return manifest;
}

// True if the checksum within `text` is that of the rest of it.
bool checksum_fits(std::string_view text) {
  std::string plain(text);
  const size_t key = plain.find(kChecksumKey);
  if (key == std::string::npos) return false;
  const size_t digits = key + kChecksumKey.size();
  if (plain.size() - digits < kNoChecksum.size()) return false;
  const std::string written = plain.substr(digits, kNoChecksum.size());
  plain.replace(digits, kNoChecksum.size(), kNoChecksum);
  return own_checksum(plain) == written;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const json state = parse_json(manifest.state);
  if (!state.is_object()) throw std::invalid_argument("a checkpoint's state is not a JSON object");
  std::set<std::string_view> names;
  std::vector<std::string> lines;
  for (const TensorEntry& entry : manifest.tensors) {
    if (!names.insert(entry.name).second) {
      throw std::invalid_argument("two tensors named " + entry.name);
    }
    lines.push_back("    " + entry_text(entry));
  }
  std::string text = fmt::format("{{\n  \"format\": \"{}\",\n  \"version\": {},\n  {}{}\",\n",
                                 kFormat, kCheckpointVersion, kChecksumKey, kNoChecksum);
  text += fmt::format("  \"step\": {},\n  \"data_position\": {},\n", manifest.step,
                      manifest.data_position);
  text += fmt::format("  \"program_version\": {},\n  \"config\": {},\n  \"state\": {},\n",
                      quoted(manifest.program_version), quoted(manifest.config), state.dump());
  text += data_text(manifest.data);
  text += fmt::format("  \"tensors\": [\n{}\n  ]\n}}\n", fmt::join(lines, ",\n"));
  text.replace(text.find(kNoChecksum), kNoChecksum.size(), own_checksum(text));
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  try {
    const json root = parse_json(text);
    if (!root.is_object() || root.value("format", "") != kFormat) {
      fail("{} is not the manifest of a checkpoint", where);
    }
    const uint64_t version = unsigned_at(root, "version");
    if (version > kCheckpointVersion) {
      fail(
          "{} is of checkpoint format version {}, and this ballast reads up to {}: use a newer "
          "ballast",
          where, version, kCheckpointVersion);
    }
    if (!checksum_fits(text)) fail("{} is corrupt: its checksum does not fit its content", where);
    return parse_fields(root);
  } catch (const BadJson& error) {
    fail("{} is corrupt: {}", where, error.what());
  } catch (const json::exception&) {
    fail("{} is corrupt: a field is missing or of the wrong type", where);
  } catch (const std::logic_error& error) {
    fail("{} is corrupt: {}", where, error.what());
  }
}

std::string entries_text(std::span<const TensorEntry> entries) {
  std::vector<std::string> lines;
  for (const TensorEntry& entry : entries) lines.push_back(entry_text(entry));
  return fmt::format("[{}]", fmt::join(lines, ",\n"));
}

std::vector<TensorEntry> parse_entries(std::string_view text) {
  return read_entries(parse_json(text));
}

}  // namespace ballast::checkpoint
