// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::checkpoint {

// Element types of the safetensors format, in its order (tensors are laid out from the last to the
// first, so that each is aligned to its element). The 4 and 6 bit types are not read.
enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::string_view dtype_name(Dtype dtype);  // as the format writes it: "F32"
std::optional<Dtype> parse_dtype(std::string_view name);
size_t dtype_size(Dtype dtype);  // bytes of one element

// A named tensor whose bytes (row-major, little-endian) lie in memory that someone else owns.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  std::span<const std::byte> data;
};

// "F32 [2, 3]", for messages.
std::string describe(Dtype dtype, const std::vector<int64_t>& shape);

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes a safetensors file straight from the views' memory. The same tensors and metadata give the
// same bytes, in any order. Readers see the old file or the new one, never a part; on failure
// (UserError) nothing is left behind. REQUIRES: distinct names, data sizes that fit the shapes.
void write_safetensors(const fs::path& path, std::span<const TensorView> tensors,
                       const SafetensorsMetadata& metadata = {});

// A safetensors file, mapped read-only. The constructor checks everything the header claims and
// throws UserError naming the file. Views stay valid as long as this object (also when moved);
// their bytes may be unaligned in files written by others.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return path_; }
  // In the order of their bytes.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;  // nullptr: not in this file
  const SafetensorsMetadata& metadata() const { return metadata_; }

 private:
  void read_header(std::string_view header, std::span<const std::byte> data);
  TensorView read_entry(const std::string& name, const nlohmann::json& info,
                        std::span<const std::byte> data) const;
  void check_layout(std::span<const std::byte> data) const;
  [[noreturn]] void refuse(const std::string& reason) const;

  fs::path path_;
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  SafetensorsMetadata metadata_;
};

}  // namespace ballast::checkpoint
