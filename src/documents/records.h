#pragma once
// Cuts a file into records of one document each, not yet parsed: lines, the values of a JSON file, or the whole file.
//
// Cutting is cheap and must be done in order; parsing (documents.h) is expensive and can be done in any order.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "documents/byte_source.h"
#include "documents/document_options.h"
#include "documents/record_source.h"

namespace athanor::inline documents {

/// A document larger than this is refused: the output of a decompressor for a damaged or hostile file must have a
/// bound.
inline constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 32;

/// Reads one file from its beginning to its end and holds at most one record at a time.
///
/// A .txt or .md file is one record. .jsonl has one record in each line that is not blank. A .json file may consist of
/// lines as well, or of one array of documents, or of objects that span lines; its beginning decides. .parquet has one
/// record in each row. If the options select by attributes, their rows are read along with the documents. The records
/// depend on the files alone.
class RecordReader {
 public:
  /// @param max_record_bytes  a larger record is an error.
  /// @throws DataError for an unknown kind of file or missing attribute files; IoError if it cannot be opened.
  RecordReader(const std::filesystem::path& file, const DocumentOptions& options,
               uint64_t max_record_bytes = kMaxDocumentBytes);
  explicit RecordReader(const std::filesystem::path& file, uint64_t max_record_bytes = kMaxDocumentBytes)
      : RecordReader(file, DocumentOptions{}, max_record_bytes) {}

  /// Replaces `record` by the next record. @return false at the end.
  /// @throws DocumentError if the file, or the rest of it, cannot be read; DataError if an attribute file has another
  ///         number of rows; IoError. From then on next() returns false.
  bool next(Record& record);

  /// Bytes of the file itself (compressed) consumed so far, for progress.
  uint64_t file_position() const { return source_->file_position(); }

 private:
  std::unique_ptr<RecordSource> source_;
  bool over_ = false;
};

/// Reads a compressed file to its end, only to check its checksums.
/// @throws DocumentError if it is damaged or cut off.
void check_compression(const std::filesystem::path& file);

}  // namespace athanor::inline documents
