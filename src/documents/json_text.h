#pragma once
// Reads the one field of a JSON row that holds the document, without building the row.

#include <cstddef>
#include <string>
#include <string_view>

namespace athanor::inline documents {

struct JsonText {
  std::string text;
  const char* cause = nullptr;  ///< if there is no text, a constant of document_error.h
  std::string message;          ///< if there is no text, the reason, on one line
  size_t error_offset = 0;      ///< if there is no text, the byte of `json`, from 0, with the syntax error; else 0
};

/// Returns the string that the object `json` has under `field` (field_path.h), or `json` itself if that is a string and
/// `may_be_string`. What only Python's json accepts (python_json.h) is an error in the text alone, not in other fields.
/// `json` must be valid UTF-8. No content of `json` makes it throw.
JsonText find_json_text(std::string_view json, const std::string& field, bool may_be_string);

/// Returns the result of find_json_text by a complete parser, without the fast path for usual rows (json_scan.h), which
/// tests compare with it.
JsonText parse_json_text(std::string_view json, const std::string& field, bool may_be_string);

}  // namespace athanor::inline documents
