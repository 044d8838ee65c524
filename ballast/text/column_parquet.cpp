// SPDX-License-Identifier: Apache-2.0
// Part of the plugin libballast_parquet.so (cmake/ParquetPlugin.cmake).
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <array>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/text/parquet_plugin.h"

namespace ballast::text {
namespace {

constexpr int64_t kBatch = 64;  // strings that are looked at together; they lie in one page

// Pages are read as they are needed, whatever the size of a row group, and checked where they have
// a checksum.
parquet::ReaderProperties reader_properties() {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();
  properties.set_page_checksum_verification(true);
  return properties;
}

std::string columns_of(const parquet::SchemaDescriptor& schema) {
  std::string names;
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (names.size() > 200) return names + ", ...";
    if (i > 0) names += ", ";
    names += schema.Column(i)->path()->ToDotString();
  }
  return names;
}

class StringColumn : public ParquetColumn {
 public:
  StringColumn(const std::filesystem::path& file, std::string column)
      : name_(file.string()), field_(std::move(column)) {
    guarded([&] { open(); });
  }

  bool next(std::string_view& value) override {
    bool found = false;
    guarded([&] { found = take(value); });
    return found;
  }
  uint64_t rows_read() const override { return rows_read_; }
  uint64_t rows() const override { return static_cast<uint64_t>(metadata_->num_rows()); }

 private:
  // Arrow's exceptions say nothing of the file.
  template <typename Work>
  void guarded(Work work) const {
    try {
      work();
    } catch (const UserError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      std::string_view why = error.what();
      while (why.ends_with('\n')) why.remove_suffix(1);
      fail("{}: damaged Parquet data, or of a kind that cannot be read: {}", name_, why);
    }
  }

  void open() {
    file_ = parquet::ParquetFileReader::OpenFile(name_, /*memory_map=*/false, reader_properties());
    metadata_ = file_->metadata();
    const parquet::SchemaDescriptor& schema = *metadata_->schema();
    column_ = schema.ColumnIndex(field_);
    if (column_ < 0) {
      fail("{} has no column '{}'; its columns are: {}. Name the one with the text by --field",
           name_, field_, columns_of(schema));
    }
    const parquet::ColumnDescriptor& descriptor = *schema.Column(column_);
    if (descriptor.physical_type() != parquet::Type::BYTE_ARRAY ||
        descriptor.max_repetition_level() > 0) {
      fail("{}: its column '{}' holds {}{}, and must hold strings", name_, field_,
           descriptor.max_repetition_level() > 0 ? "lists of " : "",
           parquet::TypeToString(descriptor.physical_type()));
    }
    levels_when_set_ = descriptor.max_definition_level();
  }

  bool take(std::string_view& value) {
    while (position_ == levels_read_) {
      if (!read_batch()) return false;
    }
    ++rows_read_;
    if (levels_when_set_ > 0 && levels_[position_] < levels_when_set_) {
      fail("{}, row {}: its '{}' is null, and must be a string; leave such rows out", name_,
           rows_read_, field_);
    }
    const parquet::ByteArray& bytes = values_[next_value_++];
    value = std::string_view(reinterpret_cast<const char*>(bytes.ptr), bytes.len);
    ++position_;
    return true;
  }

  // Fills levels_ and values_; false after the last row group.
  bool read_batch() {
    position_ = next_value_ = levels_read_ = 0;
    while (reader_ == nullptr || !reader_->HasNext()) {
      if (next_group_ == metadata_->num_row_groups()) {
        if (rows_read_ != rows())
          fail("{}: damaged Parquet data: it has {} rows, not {}", name_, rows_read_, rows());
        return false;
      }
      group_ = file_->RowGroup(next_group_++);
      reader_ = std::static_pointer_cast<parquet::ByteArrayReader>(group_->Column(column_));
    }
    int64_t values_read = 0;
    levels_read_ = static_cast<size_t>(
        reader_->ReadBatch(kBatch, levels_.data(), nullptr, values_.data(), &values_read));
    if (levels_read_ == 0) fail("{}: damaged Parquet data: a page without rows", name_);
    return true;
  }

  std::string name_, field_;
  std::unique_ptr<parquet::ParquetFileReader> file_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  int column_ = -1, next_group_ = 0;
  int16_t levels_when_set_ = 0;  // of a row whose string is not null
  std::shared_ptr<parquet::RowGroupReader> group_;
  std::shared_ptr<parquet::ByteArrayReader> reader_;
  std::array<int16_t, kBatch> levels_ = {};
  std::array<parquet::ByteArray, kBatch> values_ = {};
  size_t levels_read_ = 0, position_ = 0, next_value_ = 0;
  uint64_t rows_read_ = 0;
};

}  // namespace
}  // namespace ballast::text

void ballast_open_parquet_column(const std::filesystem::path& file, const std::string& column,
                                 std::unique_ptr<ballast::text::ParquetColumn>& out) {
  out = std::make_unique<ballast::text::StringColumn>(file, column);
}
