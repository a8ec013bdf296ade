#pragma once
// Tokenizes files with many threads: the first of the three steps of preparing.

#include <cstdint>
#include <functional>

#include "base/console.h"
#include "documents/documents.h"
#include "prepare/token_ledger.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline preparation {

struct TokenizeOptions {
  DocumentOptions documents;
  uint32_t eos_id = 0;
  TextTemplate around = {};  ///< tokens around each document, before `eos_id`
  SpecialText special_text = SpecialText::kIsToken;
  int num_threads = 1;
  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< bytes that a thread takes at once: some 50 ms of work
  uint64_t max_document_bytes = kMaxDocumentBytes;
  uint64_t shared_document_bytes = kMaxDocumentBytes;  ///< larger documents are tokenized one at a time
  std::string large_document_remedy;  ///< advice in the error about a document beyond max_document_bytes
  std::function<bool()> stopping;     ///< called before each chunk; true ends the work early
};

/// Makes one token array of each file: its documents in order, each in its template, with `eos_id` after each. The
/// arrays follow one another in the stream in the order of the files. An empty document is an `eos_id` alone. Work that
/// the ledger already has is not repeated: finished files are not opened, and finished chunks are read but not
/// tokenized.
///
/// Any number of threads works on one file, since only cutting it into records must be done in order. For each thread,
/// memory is bounded by a few chunks, or documents if those are larger. The ends of chunks depend on the file alone.
/// @return false if it was stopped.
/// @throws the error that comes first in the files, whatever the number of threads: DocumentError with file and line or
///         byte, IoError.
bool tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options, TokenLedger& ledger,
                    ProgressBar& progress);

}  // namespace athanor::inline preparation
