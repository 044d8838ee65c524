// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::scores {

// A numpy array file (.npy, versions 1 to 3), mapped read-only. The constructor checks all that the
// header claims against the file's size; UserError names the file and what is wrong.
class NpyFile {
 public:
  explicit NpyFile(const fs::path& path);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  char kind() const { return kind_; }              // 'f' float, 'i' signed, 'u' unsigned, 'b' bool
  size_t item_size() const { return item_size_; }  // bytes
  bool is_fortran() const { return fortran_; }     // the first index varies fastest
  std::string type_name() const;                   // "float32", for messages
  std::string shape_text() const;                  // "[3, 4]"

  // The elements in the file's order, in this machine's byte order.
  std::vector<std::byte> bytes() const;
  // The same as numbers; 64-bit integers are rounded to double.
  std::vector<double> numbers() const;

 private:
  void read_header(std::string_view header);
  void read_type(std::string_view type);
  [[noreturn]] void refuse(const std::string& reason) const;

  fs::path path_;
  MappedFile file_;
  std::span<const std::byte> data_;
  std::vector<int64_t> shape_;
  int64_t elements_ = 0;
  char kind_ = 'f';
  size_t item_size_ = 4;
  bool swapped_ = false, fortran_ = false;
};

// Write arrays, as a whole or not at all. The last is [values / columns, columns], row by row.
void write_npy(const fs::path& path, std::span<const int32_t> values);
void write_npy(const fs::path& path, std::span<const double> values);
void write_npy(const fs::path& path, std::span<const float> values, int64_t columns);

}  // namespace ballast::scores
