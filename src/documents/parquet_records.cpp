#include "documents/parquet_records.h"

#include "base/error.h"
#include "documents/parquet/table_reader.h"
#include "documents/parquet_library.h"
#include "documents/selection.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

class ParquetRecords : public RecordSource {
 public:
  ParquetRecords(const fs::path& file, const DocumentOptions& options, uint64_t max_record_bytes)
      : name_(file.string()), file_bytes_(parquet_size(file)), options_(options), max_bytes_(max_record_bytes) {}

  bool next(Record& record) override {
    // The file is opened only now, so that an error in it is an error of its documents.
    if (!table_) open();
    TableRow row;
    if (!table_->next(row)) {
      if (num_rows_ == 0) throw DocumentError(kNoDocuments, name_ + " holds no documents");
      return false;
    }
    record.is_row = true;
    record.line = ++num_rows_;
    record.bytes = std::move(row.text);
    record.is_null = row.is_null;
    record.fields = std::move(row.fields);
    return true;
  }

  uint64_t file_position() const override {
    return table_ ? static_cast<uint64_t>(table_->fraction_read() * static_cast<double>(file_bytes_)) : 0;
  }

 private:
  void open() {
    static const auto open_table = reinterpret_cast<OpenTable>(parquet_function(name_, "athanor_open_table"));
    TableRequest request{name_, options_.text_field, {}, max_bytes_};
    if (options_.selection) request.other_fields = options_.selection->scalar_paths(options_.text_field);
    table_.reset(open_table(request));
  }

  std::string name_;
  uint64_t file_bytes_;
  DocumentOptions options_;
  uint64_t max_bytes_, num_rows_ = 0;
  std::unique_ptr<TableReader> table_;
};

}  // namespace

std::unique_ptr<RecordSource> open_parquet_records(const fs::path& file, const DocumentOptions& options,
                                                   uint64_t max_record_bytes) {
  return std::make_unique<ParquetRecords>(file, options, max_record_bytes);
}

}  // namespace athanor::inline documents
