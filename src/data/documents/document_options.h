#pragma once
// How documents are read: which field is the text, what a bad one does, which are kept.

#include <memory>
#include <string>

#include "data/documents/document_error.h"

namespace athanor {

class Selection;

struct DocumentOptions {
  std::string text_field = "text";  ///< of JSON objects; of tables the column
  OnError on_error = OnError::kFail;
  std::shared_ptr<const Selection> selection = nullptr;  ///< which documents are kept; null: all
};

}  // namespace athanor
