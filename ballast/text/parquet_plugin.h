// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "ballast/text/document_source.h"

namespace ballast::text {

// The strings of one column of a Parquet file, from its first row to its last.
class ParquetColumn {
 public:
  virtual ~ParquetColumn() = default;

  // The next row's string, valid until the next call; false after the last row. Throws UserError.
  virtual bool next(std::string_view& value) = 0;
  virtual uint64_t rows_read() const = 0;
  virtual uint64_t rows() const = 0;
};

// Parquet lives in libballast_parquet.so, with the Arrow libraries it needs: it is loaded only when
// there is such a file to read.
struct ParquetPlugin {
  std::filesystem::path path;  // the file, whether or not it is there
  std::string reason;          // why it is not loaded; empty if it is
  void (*open)(const std::filesystem::path& file, const std::string& column,
               std::unique_ptr<ParquetColumn>& out) = nullptr;
};

// Loads the plugin, for the rest of the process. A second call costs little. Never throws.
ParquetPlugin load_parquet_plugin();

// Each row of `file` is a document: its string in the column `field` (a.b: field b of the struct
// a). Empty ones are passed over and counted. Throws UserError naming the file and, of a bad row,
// its number.
std::unique_ptr<DocumentSource> read_parquet(const std::filesystem::path& file,
                                             const std::string& field);

}  // namespace ballast::text

// What the plugin exports.
extern "C" void ballast_open_parquet_column(const std::filesystem::path& file,
                                            const std::string& column,
                                            std::unique_ptr<ballast::text::ParquetColumn>& out);
