#pragma once
// What one document is cut out as, and what cuts.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace athanor {

/// A document's row of an attribute file.
struct AttributeRow {
  std::string bytes;  ///< a JSON object
  uint64_t line = 1;
};

struct Record {
  std::string bytes;
  uint64_t line = 1;          ///< where it starts, counted from 1; of a table the row
  uint64_t byte_in_line = 0;  ///< counted from 0
  bool is_json = false;       ///< else it is the document's text itself
  bool in_array = false;      ///< an element of a JSON array, which may be a plain string
  bool is_row = false;        ///< of a table: then `bytes` is the text, and
  bool is_null = false;       ///< this says that there is none
  std::string fields;         ///< other fields of a table's row that a selection reads: a JSON object, or empty
  std::vector<AttributeRow> attributes;  ///< one from each attribute file of the selection

  /// What it holds, for bounding memory.
  size_t num_bytes() const {
    size_t total = sizeof(Record) + bytes.size() + fields.size();
    for (const auto& row : attributes) total += sizeof(AttributeRow) + row.bytes.size();
    return total;
  }
};

/// One file's records in order. After an error or the end it is not asked again.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// `record` is empty before. @return false at the end. @throws DataError.
  virtual bool next(Record& record) = 0;
  /// Bytes of the file consumed so far, for progress.
  virtual uint64_t file_position() const = 0;
};

}  // namespace athanor
