#pragma once
// A file cut into what holds one document each, not yet parsed: lines, the values of a JSON file, or the whole file.
//
// Cutting is cheap and has to be done in order; parsing (documents.h) is dear and can be done anywhere.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/documents/byte_source.h"
#include "data/documents/document_options.h"
#include "data/documents/record_source.h"

namespace athanor {

/// A document larger than this is refused: what a decompressor makes of a damaged or hostile file must have an end.
inline constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 32;

/// Reads one file from its beginning to its end, holding no more than one record at a time.
///
/// .txt and .md are one record. .jsonl has one in each line that is not blank. A .json file may be lines as well, or
/// one array of documents, or objects spread over lines; its beginning tells which. .parquet has one in each row, and
/// rows of attributes are read beside the documents where the options select by them. What stands where depends on the
/// files alone.
class RecordReader {
 public:
  RecordReader(const std::filesystem::path& file, const DocumentOptions& options,
               uint64_t max_record_bytes = kMaxDocumentBytes);
  explicit RecordReader(const std::filesystem::path& file, uint64_t max_record_bytes = kMaxDocumentBytes)
      : RecordReader(file, DocumentOptions{}, max_record_bytes) {}

  /// @return false at the end.
  /// @throws DocumentError where the file as such is at fault; it is over then, and next() answers false.
  bool next(Record& record);

  /// Bytes of the file itself consumed so far, for progress.
  uint64_t file_position() const { return source_->file_position(); }

 private:
  std::unique_ptr<RecordSource> source_;
  bool over_ = false;
};

/// Reads a compressed file through for nothing but its checksums.
/// @throws DocumentError if it is damaged or cut off.
void check_compression(const std::filesystem::path& file);

}  // namespace athanor
