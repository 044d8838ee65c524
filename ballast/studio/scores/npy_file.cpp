// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/npy_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "ballast/assignment/half_float.h"
#include "ballast/system/error.h"

namespace ballast::scores {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";

// The header is a Python dictionary of three entries; this reads the literals that occur in it.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  bool take(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool string(std::string& value) {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return false;
    value = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  bool boolean(bool& value) {
    value = take("True");
    return value || take("False");
  }

  bool shape(std::vector<int64_t>& sizes) {
    if (!take("(")) return false;
    while (!take(")")) {
      skip_space();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) return false;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      take("L");  // Python 2 wrote its long numbers so
      sizes.push_back(size);
      if (!take(",")) return take(")");
    }
    return true;
  }

  bool is_next(char c) {
    skip_space();
    return rest_.starts_with(c);
  }

  bool at_end() {
    skip_space();
    return rest_.empty();
  }

 private:
  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }

  std::string_view rest_;
};

template <typename Source>
void convert(std::span<const std::byte> bytes, std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    Source value;
    std::memcpy(&value, bytes.data() + i * sizeof(Source), sizeof(Source));
    numbers[i] = static_cast<double>(value);
  }
}

template <typename Value>
void write_array(const fs::path& path, std::string_view type, const std::string& shape,
                 std::span<const Value> values) {
  // Magic, version and length take 10 bytes; the data starts at a multiple of 64.
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  replace_file(path, [&](OutputFile& file) {
    file.write(kMagic);
    file.write(std::string_view("\x01\x00", 2));
    file.write(std::as_bytes(std::span(&size, 1)));
    file.write(header);
    file.write(std::as_bytes(values));
  });
}

}  // namespace

NpyFile::NpyFile(const fs::path& path) : path_(path), file_(path) {
  const std::string_view text = file_.text();
  if (!text.starts_with(kMagic)) refuse("it does not start as a numpy array does");
  if (text.size() < 10) refuse("it ends within its header");
  const int version = text[6];
  if (version < 1 || version > 3)
    refuse(fmt::format("its version is {}, and 1 to 3 are known", version));
  const size_t length_bytes = version == 1 ? 2 : 4, start = 8 + length_bytes;
  if (text.size() < start) refuse("it ends within its header");
  size_t length = 0;
  std::memcpy(&length, text.data() + 8, length_bytes);
  if (length > text.size() - start) refuse("it ends within its header");
  data_ = file_.bytes().subspan(start + length);
  read_header(text.substr(start, length));

  // The most elements that the file can hold bounds the product before it can overflow.
  const size_t most = data_.size() / item_size_;
  const bool is_empty = std::ranges::find(shape_, 0) != shape_.end();
  size_t elements = is_empty ? 0 : 1;
  for (const int64_t size : shape_) {
    if (is_empty) break;
    if (static_cast<size_t>(size) > most / elements)
      elements = most + 1;
    else
      elements *= static_cast<size_t>(size);
    if (elements > most)
      refuse(fmt::format("it holds {} bytes of data, too few for {} {}", data_.size(), type_name(),
                         shape_text()));
  }
  elements_ = static_cast<int64_t>(elements);
  if (data_.size() != elements * item_size_)
    refuse(fmt::format("it holds {} bytes of data, and {} {} has {}", data_.size(), type_name(),
                       shape_text(), elements * item_size_));
}

void NpyFile::read_header(std::string_view header) {
  HeaderReader reader(header);
  std::string key, type;
  bool seen_type = false, seen_order = false, seen_shape = false;
  bool more = reader.take("{");
  if (!more) refuse("its header is no dictionary");
  while (more) {
    bool understood = reader.string(key) && reader.take(":");
    if (understood && key == "descr" && !seen_type) {
      if (reader.take("[")) refuse("its elements are records; want plain numbers");
      understood = seen_type = reader.string(type);
    } else if (understood && key == "fortran_order" && !seen_order) {
      understood = seen_order = reader.boolean(fortran_);
    } else if (understood && key == "shape" && !seen_shape) {
      understood = seen_shape = reader.shape(shape_);
    } else {
      understood = false;
    }
    if (!understood) refuse("its header cannot be read");
    more = reader.take(",") && !reader.is_next('}');
  }
  if (!reader.take("}") || !reader.at_end() || !seen_type || !seen_order || !seen_shape)
    refuse("its header cannot be read");
  read_type(type);
}

void NpyFile::read_type(std::string_view type) {
  const auto unknown = [&] {
    refuse(
        fmt::format("its elements are '{}'; want floating-point, whole or boolean numbers of up "
                    "to 64 bits",
                    type));
  };
  if (type.size() != 3 || std::string_view("<>|=").find(type[0]) == std::string_view::npos ||
      std::string_view("fiub").find(type[1]) == std::string_view::npos)
    unknown();
  kind_ = type[1];
  item_size_ = static_cast<size_t>(type[2] - '0');
  swapped_ = type[0] == '>' && item_size_ > 1;
  const bool is_power = item_size_ == 1 || item_size_ == 2 || item_size_ == 4 || item_size_ == 8;
  if (!is_power || (kind_ == 'f' && item_size_ == 1) || (kind_ == 'b' && item_size_ != 1))
    unknown();
}

std::string NpyFile::type_name() const {
  if (kind_ == 'b') return "bool";
  return fmt::format("{}{}",
                     kind_ == 'f'   ? "float"
                     : kind_ == 'i' ? "int"
                                    : "uint",
                     8 * item_size_);
}

std::string NpyFile::shape_text() const {
  std::string text;
  for (const int64_t size : shape_) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

std::vector<std::byte> NpyFile::bytes() const {
  std::vector<std::byte> copy(data_.begin(), data_.end());
  if (swapped_) {
    for (size_t i = 0; i < copy.size(); i += item_size_)
      std::reverse(&copy[i], &copy[i] + item_size_);
  }
  return copy;
}

std::vector<double> NpyFile::numbers() const {
  const std::vector<std::byte> in = bytes();
  std::vector<double> numbers(static_cast<size_t>(elements_));
  const size_t size = item_size_;
  if (kind_ == 'f') {
    if (size == 8)
      convert<double>(in, numbers);
    else if (size == 4)
      convert<float>(in, numbers);
    else
      for (size_t i = 0; i < numbers.size(); ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, &in[2 * i], 2);
        numbers[i] = assignment::from_float16(bits);
      }
  } else if (kind_ == 'i') {
    if (size == 8)
      convert<int64_t>(in, numbers);
    else if (size == 4)
      convert<int32_t>(in, numbers);
    else if (size == 2)
      convert<int16_t>(in, numbers);
    else
      convert<int8_t>(in, numbers);
  } else {
    if (size == 8)
      convert<uint64_t>(in, numbers);
    else if (size == 4)
      convert<uint32_t>(in, numbers);
    else if (size == 2)
      convert<uint16_t>(in, numbers);
    else
      convert<uint8_t>(in, numbers);
  }
  return numbers;
}

void NpyFile::refuse(const std::string& reason) const {
  fail("{} cannot be read as a numpy array: {}", path_.string(), reason);
}

void write_npy(const fs::path& path, std::span<const int32_t> values) {
  write_array(path, "<i4", fmt::format("{},", values.size()), values);
}

void write_npy(const fs::path& path, std::span<const double> values) {
  write_array(path, "<f8", fmt::format("{},", values.size()), values);
}

void write_npy(const fs::path& path, std::span<const float> values, int64_t columns) {
  const auto rows = static_cast<int64_t>(values.size()) / std::max<int64_t>(columns, 1);
  write_array(path, "<f4", fmt::format("{}, {}", rows, columns), values);
}

}  // namespace ballast::scores
