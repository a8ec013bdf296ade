#pragma once
// How documents are read: the field with the text, the treatment of bad documents, and the selection.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "documents/document_error.h"
#include "documents/inputs.h"

namespace athanor::inline documents {

class Selection;

/// The largest window that zstd has (--long=31).
inline constexpr uint64_t kMaxZstdWindow = uint64_t{1} << 31;

struct DocumentOptions {
  std::string text_field = "text";  ///< field of JSON objects; column of tables
  OnError on_error = OnError::kFail;
  std::shared_ptr<const Selection> selection = nullptr;  ///< documents that are kept; null: all
  std::optional<InputFormat> standard_input = {};        ///< what `-` holds (standard_input.h)
  uint64_t max_zstd_window = kMaxZstdWindow;             ///< bytes of memory that decompressing a file may keep
};

}  // namespace athanor::inline documents
