// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/json.h"

namespace ballast::checkpoint {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct DtypeRow {
  std::string_view name;
  size_t size;
};

constexpr std::array kDtypes = {
    DtypeRow{"BOOL", 1},    DtypeRow{"U8", 1},      DtypeRow{"I8", 1},  DtypeRow{"F8_E5M2", 1},
    DtypeRow{"F8_E4M3", 1}, DtypeRow{"F8_E8M0", 1}, DtypeRow{"I16", 2}, DtypeRow{"U16", 2},
    DtypeRow{"F16", 2},     DtypeRow{"BF16", 2},    DtypeRow{"I32", 4}, DtypeRow{"U32", 4},
    DtypeRow{"F32", 4},     DtypeRow{"C64", 8},     DtypeRow{"F64", 8}, DtypeRow{"I64", 8},
    DtypeRow{"U64", 8},
};
static_assert(kDtypes.size() == static_cast<size_t>(Dtype::kU64) + 1);

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the official reader's limit

// Bytes of a tensor, or nothing if that does not fit 64 bits.
std::optional<uint64_t> bytes_of(Dtype dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = dtype_size(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return {};
  }
  return bytes;
}

// A name or value as JSON; throws if it is not UTF-8, which the format demands.
std::string quoted(const std::string& text) { return json(text).dump(); }

std::string make_header(const std::vector<const TensorView*>& tensors,
                        const SafetensorsMetadata& metadata) {
  std::string header = "{";
  const auto comma = [&] { return header.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    header += fmt::format("{}:{}", quoted(std::string(kMetadataKey)), json(metadata).dump());
  }
  uint64_t offset = 0;
  for (const TensorView* tensor : tensors) {
    if (tensor->name == kMetadataKey) throw std::invalid_argument("a tensor named __metadata__");
    if (bytes_of(tensor->dtype, tensor->shape) != tensor->data.size()) {
      throw std::invalid_argument(fmt::format("tensor {}: {} bytes given for {}", tensor->name,
                                              tensor->data.size(),
                                              describe(tensor->dtype, tensor->shape)));
    }
    const uint64_t end = offset + tensor->data.size();
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", comma(),
                          quoted(tensor->name), dtype_name(tensor->dtype),
                          fmt::join(tensor->shape, ","), offset, end);
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeaderBytes) throw std::invalid_argument("too many tensors for one file");
  return header;
}

std::vector<const TensorView*> in_file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw std::invalid_argument(fmt::format("two tensors named {}", *twice));
  }
  return order;
}

std::optional<uint64_t> as_unsigned(const json& value) {
  if (!value.is_number_unsigned()) return {};
  return value.get<uint64_t>();
}

// The sizes in a JSON array of non-negative integers that fit int64.
std::optional<std::vector<int64_t>> as_shape(const json& value) {
  if (!value.is_array()) return {};
  std::vector<int64_t> shape;
  for (const json& item : value) {
    const auto size = as_unsigned(item);
    if (!size || *size > INT64_MAX) return {};
    shape.push_back(static_cast<int64_t>(*size));
  }
  return shape;
}

const json& member(const json& object, const char* key) {
  static const json missing;
  const auto found = object.find(key);
  return found == object.end() ? missing : *found;
}

}  // namespace

std::string_view dtype_name(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return {};
}

size_t dtype_size(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].size; }

std::string describe(Dtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

void write_safetensors(const fs::path& path, std::span<const TensorView> tensors,
                       const SafetensorsMetadata& metadata) {
  const auto order = in_file_order(tensors);
  const std::string header = make_header(order, metadata);
  const uint64_t length = header.size();
  replace_file(path, [&](OutputFile& file) {
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (const TensorView* tensor : order) file.write(tensor->data);
  });
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  if (bytes.empty()) refuse("it is empty");
  if (bytes.size() < kLengthBytes) refuse("it is cut short within its first 8 bytes");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    refuse(fmt::format("it claims a header of {} bytes, more than the format allows", length));
  }
  if (length > bytes.size() - kLengthBytes) {
    refuse(
        fmt::format("it is cut short: a header of {} bytes in a file of {}", length, bytes.size()));
  }
  const auto header = file_.text().substr(kLengthBytes, length);
  if (!header.starts_with('{')) refuse("its header does not start with '{'");
  const auto data = bytes.subspan(kLengthBytes + length);
  read_header(header, data);
  check_layout(data);
}

void SafetensorsFile::refuse(const std::string& reason) const {
  fail("{} is not a valid safetensors file: {}", path_.string(), reason);
}

void SafetensorsFile::read_header(std::string_view header, std::span<const std::byte> data) {
  json root;
  try {
    root = parse_json(header);
  } catch (const BadJson& error) {
    refuse(error.what());
  }
  for (const auto& [name, info] : root.items()) {
    if (!info.is_object()) refuse(fmt::format("its entry '{}' is not a JSON object", name));
    if (name != kMetadataKey) {
      tensors_.push_back(read_entry(name, info, data));
      continue;
    }
    for (const auto& [key, value] : info.items()) {
      if (!value.is_string()) refuse(fmt::format("its metadata '{}' is not a string", key));
      metadata_[key] = value.get<std::string>();
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

TensorView SafetensorsFile::read_entry(const std::string& name, const json& info,
                                       std::span<const std::byte> data) const {
  const json& type = member(info, "dtype");
  const auto dtype = type.is_string() ? parse_dtype(type.get<std::string>()) : std::nullopt;
  if (!dtype) refuse(fmt::format("tensor '{}' has no dtype we know: {}", name, type.dump()));
  const auto shape = as_shape(member(info, "shape"));
  if (!shape) refuse(fmt::format("tensor '{}' has no valid shape", name));
  const json& offsets = member(info, "data_offsets");
  const bool is_pair = offsets.is_array() && offsets.size() == 2;
  const auto begin = is_pair ? as_unsigned(offsets[0]) : std::nullopt;
  const auto end = is_pair ? as_unsigned(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) {
    refuse(fmt::format("tensor '{}' has no valid data_offsets", name));
  }
  if (*end > data.size()) {
    refuse(fmt::format("tensor '{}' ends at byte {} of {}: the file is cut short", name, *end,
                       data.size()));
  }
  if (bytes_of(*dtype, *shape) != *end - *begin) {
    refuse(fmt::format("tensor '{}' has {} bytes, which does not fit {}", name, *end - *begin,
                       describe(*dtype, *shape)));
  }
  return {name, *dtype, *shape, data.subspan(*begin, *end - *begin)};
}

void SafetensorsFile::check_layout(std::span<const std::byte> data) const {
  const std::byte* reached = data.data();
  for (const TensorView& tensor : tensors_) {
    if (tensor.data.data() < reached) {
      refuse(fmt::format("tensor '{}' overlaps another one", tensor.name));
    }
    if (tensor.data.data() > reached) {
      refuse(fmt::format("there is a hole before tensor '{}'", tensor.name));
    }
    reached += tensor.data.size();
  }
  const auto left = data.data() + data.size() - reached;
  if (left != 0) refuse(fmt::format("{} bytes after the last tensor belong to none", left));
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace ballast::checkpoint
