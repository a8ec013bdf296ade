#pragma once
// How documents are read: the field with the text, the treatment of bad documents, and the selection.

#include <memory>
#include <optional>
#include <string>

#include "documents/document_error.h"
#include "documents/inputs.h"

namespace athanor {

class Selection;

struct DocumentOptions {
  std::string text_field = "text";  ///< field of JSON objects; column of tables
  OnError on_error = OnError::kFail;
  std::shared_ptr<const Selection> selection = nullptr;  ///< documents that are kept; null: all
  std::optional<InputFormat> standard_input = {};        ///< what `-` holds (standard_input.h)
};

}  // namespace athanor
