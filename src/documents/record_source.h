#pragma once
// Records, each with one document, and the interface of their sources.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace athanor::inline documents {

/// A document's row of an attribute file.
struct AttributeRow {
  std::string bytes;  ///< a JSON object
  uint64_t line = 1;  ///< its line in the attribute file, from 1
};

struct Record {
  std::string bytes;
  uint64_t line = 1;          ///< line where it starts, counted from 1; the row, if the file is a table
  uint64_t byte_in_line = 0;  ///< byte of that line where it starts, counted from 0
  bool is_json = false;       ///< true: `bytes` is JSON; false: it is the document's text
  bool in_array = false;      ///< element of a JSON array, which may be a plain string
  bool is_row = false;        ///< row of a table: `bytes` is the text
  bool is_null = false;       ///< row of a table without text
  std::string fields;         ///< other fields of a table's row that a selection reads: a JSON object, or empty
  std::vector<AttributeRow> attributes;  ///< one from each attribute file of the selection

  /// Bytes that the record holds, for bounding memory.
  size_t num_bytes() const {
    size_t total = sizeof(Record) + bytes.size() + fields.size();
    for (const auto& row : attributes) total += sizeof(AttributeRow) + row.bytes.size();
    return total;
  }
};

/// One file's records in order. After an error or the end, next() must not be called again.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// Fills `record`, which must be empty, with the next record. @return false at the end.
  /// @throws DataError, often a DocumentError; IoError.
  virtual bool next(Record& record) = 0;
  /// Bytes of the file consumed so far, for progress.
  virtual uint64_t file_position() const = 0;
};

}  // namespace athanor::inline documents
