#pragma once
// The one field of a JSON row that holds the document, without building the row.

#include <cstddef>
#include <string>
#include <string_view>

namespace athanor {

struct JsonText {
  std::string text;
  const char* cause = nullptr;  ///< a constant of document_error.h where there is no text
  std::string message;          ///< then says why, on one line
  size_t error_offset = 0;      ///< and where, in `json`
};

/// The string that the object `json` has under `field`, or `json` itself if that is a string and `may_be_string`.
/// `json` must be valid UTF-8. Never throws for what `json` holds.
JsonText find_json_text(std::string_view json, const std::string& field, bool may_be_string);

/// The same by a whole parser, without the fast way that usual rows take (json_scan.h): its oracle.
JsonText parse_json_text(std::string_view json, const std::string& field, bool may_be_string);

}  // namespace athanor
