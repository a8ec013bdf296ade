#pragma once
// Reads the one field of a JSON row that holds the document, without building the row.

#include <cstddef>
#include <optional>
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
/// `may_be_string`. What only Python's json accepts is an error in the text alone, not in other fields.
/// `json` must be valid UTF-8. No content of `json` makes it throw.
JsonText find_json_text(std::string_view json, const std::string& field, bool may_be_string);

/// Returns the result of find_json_text by a complete parser, without the fast path for usual rows (scan_json_text),
/// which tests compare with it.
JsonText parse_json_text(std::string_view json, const std::string& field, bool may_be_string);

/// The fast path for usual rows: simdjson reads a JSON object and finds the one string that is needed. Returns the
/// string that the object `json` has under `field` (field_path.h), if `json` is valid JSON and has the field exactly
/// once. Returns none in every other case, and for a few unusual rows that are valid (deep nesting, integers of more
/// than 64 bits): find_json_text then reads the row again and reports the error, if there is one.
std::optional<std::string> scan_json_text(std::string_view json, std::string_view field);

}  // namespace athanor::inline documents
