#pragma once
// A file cut into what holds one document each, not yet parsed: lines, the values of a JSON file, or the whole file.
//
// Cutting is cheap and has to be done in order; parsing (documents.h) is dear and can be done anywhere.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/byte_source.h"
#include "data/document_error.h"

namespace athanor {

struct Record {
  std::string bytes;
  uint64_t line = 1;          ///< where it starts, counted from 1
  uint64_t byte_in_line = 0;  ///< counted from 0
  bool is_json = false;       ///< else it is the document's text itself
  bool in_array = false;      ///< an element of a JSON array, which may be a plain string
};

/// A document larger than this is refused: what a decompressor makes of a damaged or hostile file must have an end.
inline constexpr uint64_t kMaxDocumentBytes = uint64_t{1} << 32;

/// Reads one file from its beginning to its end, holding no more than one record at a time.
///
/// .txt and .md are one record. .jsonl has one in each line that is not blank. A .json file may be lines as well, or
/// one array of documents, or objects spread over lines; its beginning tells which.
class RecordReader {
 public:
  explicit RecordReader(const std::filesystem::path& file, uint64_t max_record_bytes = kMaxDocumentBytes);
  ~RecordReader();

  /// @return false at the end.
  /// @throws DocumentError where the file as such is at fault; it is over then, and next() answers false.
  bool next(Record& record);

  /// Bytes of the file itself consumed so far, for progress.
  uint64_t file_position() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads a compressed file through for nothing but its checksums.
/// @throws DocumentError if it is damaged or cut off.
void check_compression(const std::filesystem::path& file);

}  // namespace athanor
