#pragma once
// The documents of a file, one after another.

#include <filesystem>
#include <functional>
#include <string>

#include "data/document_error.h"
#include "data/inputs.h"
#include "data/records.h"

namespace athanor {

struct Document {
  std::string text;
  std::string where;  ///< "file:line", or "file" where the whole file is the document
};

struct DocumentOptions {
  std::string text_field = "text";  ///< of JSON objects
  OnError on_error = OnError::kFail;
};

/// Calls `sink` with each document in order. .txt and .md are one document each; .jsonl and .json hold objects, the
/// text in `text_field` (elements of a JSON array may be plain strings); .gz and .zst hold any of these.
/// Memory stays bounded by the largest document.
///
/// @return what was skipped, by cause. With kSkip a bad document is passed over, and so is what follows damage in the
///         file as such; the first of each cause is logged.
/// @throws DocumentError with file and line or byte, with kFail.
SkipCounts read_documents(const std::filesystem::path& file, const DocumentOptions& options,
                          const std::function<void(Document&&)>& sink);

/// Passes `error`, about a document of `file`, to `skips`. Before that would throw it, text that is no JSON or no UTF-8
/// is traced back to damaged compression if that is to blame: checksums come at the end, so what is garbled is read
/// before the damage is seen.
/// @throws DocumentError with OnError::kFail.
void handle_document_error(const DocumentError& error, const std::filesystem::path& file, SkipLog& skips);

/// Parses what a RecordReader cut out of `file`.
/// @throws DocumentError with file and line or byte.
Document parse_document(Record&& record, const std::filesystem::path& file, const std::string& text_field);

}  // namespace athanor
