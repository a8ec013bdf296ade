#include "documents/parquet_rows.h"

#include "base/error.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/parquet/table_reader.h"
#include "documents/parquet_library.h"

namespace athanor::inline documents {
namespace {

class ParquetObjects : public RecordSource {
 public:
  ParquetObjects(const std::filesystem::path& file, uint64_t max_record_bytes)
      : name_(file.string()), file_bytes_(parquet_size(file)), max_bytes_(max_record_bytes) {}

  bool next(Record& record) override {
    if (!table_) {
      static const auto open_rows = reinterpret_cast<OpenTable>(parquet_function(name_, "athanor_open_rows"));
      table_.reset(open_rows({name_, "", {}, max_bytes_}));
    }
    TableRow row;
    if (!table_->next(row)) {
      if (record_ == 0) throw DocumentError(kNoDocuments, name_ + " holds no rows");
      return false;
    }
    record.is_row = true;
    record.line = ++record_;
    record.bytes = std::move(row.fields);
    if (record.bytes.size() > max_bytes_)
      throw DocumentError(kTooLarge, fmt::format("{}:row {}: a row of more than {}", name_, record_,
                                                 format_bytes(static_cast<double>(max_bytes_))));
    return true;
  }

  uint64_t file_position() const override {
    return table_ ? static_cast<uint64_t>(table_->fraction_read() * static_cast<double>(file_bytes_)) : 0;
  }

 private:
  std::string name_;
  uint64_t file_bytes_, max_bytes_, record_ = 0;
  std::unique_ptr<TableReader> table_;
};

}  // namespace

std::unique_ptr<RecordSource> open_parquet_rows(const std::filesystem::path& file, uint64_t max_record_bytes) {
  return std::make_unique<ParquetObjects>(file, max_record_bytes);
}

}  // namespace athanor::inline documents
