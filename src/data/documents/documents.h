#pragma once
// The documents of a file, one after another.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "data/documents/document_error.h"
#include "data/documents/inputs.h"
#include "data/documents/records.h"

namespace athanor {

struct Document {
  std::string text;
  std::string where;                 ///< "file:line", "file:row 17", or "file" where the whole file is the document
  std::string_view dropped_by = {};  ///< what it was dropped by; lives as long as the options. Empty: it is kept
};

/// Calls `sink` with each document in order. .txt and .md are one document each; .jsonl and .json hold objects, the
/// text in `text_field` (elements of a JSON array may be plain strings); .gz and .zst hold any of these; .parquet has a
/// document in each row. Those that the selection drops are passed over and counted. Memory stays bounded by the
/// largest document.
///
/// @return what was skipped or dropped, by cause. With kSkip a bad document is passed over, and so is what follows
/// damage in the
///         file as such; the first of each cause is logged.
/// @throws DocumentError with file and line or byte, with kFail.
SkipCounts read_documents(const std::filesystem::path& file, const DocumentOptions& options,
                          const std::function<void(Document&&)>& sink);

/// Passes `error`, about a document of `file`, to `skips`. Before that would throw it, text that is no JSON or no UTF-8
/// is traced back to damaged compression if that is to blame: checksums come at the end, so what is garbled is read
/// before the damage is seen.
/// @throws DocumentError with OnError::kFail.
void handle_document_error(const DocumentError& error, const std::filesystem::path& file, SkipLog& skips);

/// Parses what a RecordReader cut out of `file`, and judges it by the selection.
/// @throws DocumentError with file and line or byte; DataError if attributes belong to another document.
Document parse_document(Record&& record, const std::filesystem::path& file, const DocumentOptions& options);

}  // namespace athanor
