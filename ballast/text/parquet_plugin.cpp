// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/parquet_plugin.h"

#include <dlfcn.h>

#include <system_error>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/open_plugin.h"
#include "ballast/text/piece_cut.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;

// Beside the program in a build folder; where it is packed, in lib beside bin.
fs::path plugin_path() {
  constexpr const char* kName = "libballast_parquet.so";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder, folder / "../lib", folder / "../../lib"}) {
    if (fs::exists(place / kName, error)) return (place / kName).lexically_normal();
  }
  return folder / kName;
}

class ParquetDocuments : public DocumentSource {
 public:
  ParquetDocuments(std::unique_ptr<ParquetColumn> column, uint64_t file_bytes)
      : column_(std::move(column)), file_bytes_(file_bytes) {}

  bool next(TextPiece& piece) override {
    while (pieces_.is_done()) {
      std::string_view value;
      if (!column_->next(value)) return false;
      if (value.empty()) ++empty_documents_;
      pieces_.start(std::string(value));
    }
    pieces_.next(piece);
    return true;
  }

  // Columns lie apart in the file: what share of the rows was read is what share of it was.
  uint64_t bytes_consumed() const override {
    const uint64_t rows = column_->rows();
    if (rows == column_->rows_read()) return file_bytes_;
    const double share = static_cast<double>(column_->rows_read()) / static_cast<double>(rows);
    return static_cast<uint64_t>(share * static_cast<double>(file_bytes_));
  }
  uint64_t empty_documents() const override { return empty_documents_; }

 private:
  std::unique_ptr<ParquetColumn> column_;
  uint64_t file_bytes_;
  DocumentPieces pieces_;
  uint64_t empty_documents_ = 0;
};

}  // namespace

ParquetPlugin load_parquet_plugin() {
  ParquetPlugin plugin;
  plugin.path = plugin_path();
  const OpenedPlugin opened =
      open_plugin(plugin.path, "ballast_open_parquet_column", RTLD_NOW | RTLD_LOCAL);
  plugin.open = reinterpret_cast<decltype(plugin.open)>(opened.entry);
  plugin.reason = opened.reason;
  if (opened.is_missing) plugin.reason += " (it is built where tools/setup could install pyarrow)";
  return plugin;
}

std::unique_ptr<DocumentSource> read_parquet(const fs::path& file, const std::string& field) {
  const ParquetPlugin plugin = load_parquet_plugin();
  if (plugin.open == nullptr)
    fail("{} is Parquet, which cannot be read here: {}", file.string(), plugin.reason);
  std::unique_ptr<ParquetColumn> column;
  plugin.open(file, field, column);
  std::error_code error;
  const uint64_t bytes = fs::file_size(file, error);
  return std::make_unique<ParquetDocuments>(std::move(column), error ? 0 : bytes);
}

}  // namespace ballast::text
