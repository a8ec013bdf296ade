#include "documents/parquet_records.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/own_folder.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/other_content.h"
#include "documents/parquet/table_reader.h"
#include "documents/selection.h"

namespace athanor::inline documents {
namespace fs = std::filesystem;

namespace {

// Opens libathanor_parquet.so, which is next to libathanor, when the first Parquet file is read.

// Returns the address of a function that the library exports. @param file  for messages: what is to be read.
// @throws DataError with the remedy if this build has no such library.
void* parquet_function(const std::string& file, const char* name) {
  const auto library = own_folder() / "libathanor_parquet.so";
  std::error_code ignored;
  ATHANOR_CHECK_DATA(fs::exists(library, ignored),
                     "{}: this program was built without Parquet ({} is missing); run `scripts/setup --parquet` and "
                     "build again, or turn the file into .jsonl.zst",
                     file, library.string());
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail<Error>("cannot open {}: {}; run `scripts/setup --parquet` and build again", library.string(), ::dlerror());
  void* function = ::dlsym(handle, name);
  if (!function) fail<Error>("{} is of another version; build again", library.string());
  return function;
}

// Returns the size of a Parquet file. @throws DataError if it is not a regular file, DocumentError if it is empty or
// of another kind, IoError if it cannot be opened: libparquet's messages would be less clear.
uint64_t parquet_size(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_errno("cannot open", file.string());
  std::array<char, kContentBytes> first;
  const ssize_t num_first = ::pread(fd, first.data(), first.size(), 0);
  ::close(fd);
  ATHANOR_CHECK_DATA(fs::is_regular_file(file), "{}: Parquet is read from its end: name a regular file", file.string());
  const auto size = fs::file_size(file);
  if (size == 0)
    throw DocumentError(kNoDocuments,
                        file.string() + " is empty; leave it out, or pass over such files with --on-error skip");
  check_stored_content({first.data(), static_cast<size_t>(std::max<ssize_t>(0, num_first))}, file.string(),
                       {InputKind::kParquet});
  return size;
}

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
