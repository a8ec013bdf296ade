#pragma once
// Files to tokens, by many threads: the first of the three steps of preparing.

#include <cstdint>
#include <functional>

#include "base/console.h"
#include "data/documents/documents.h"
#include "data/prepare/token_ledger.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {

struct TokenizeOptions {
  DocumentOptions documents;
  uint32_t eos_id = 0;
  int num_threads = 1;
  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< what a thread takes at once: some 50 ms of work
  uint64_t max_document_bytes = kMaxDocumentBytes;
  uint64_t shared_document_bytes = kMaxDocumentBytes;  ///< larger ones are turned into tokens one at a time
  std::string large_document_remedy;                   ///< what is said of a document beyond that
  std::function<bool()> stopping;                      ///< asked before each chunk: true ends the work early
};

/// Each file becomes one token array, its documents in order with `eos_id` after each; the arrays follow one another
/// in the stream in the order of the files. An empty document is an `eos_id` alone. What the ledger has already is not
/// done again: finished files stay closed, finished chunks are read over.
///
/// Any number of threads works on one file, since only cutting it into records is done in order. Memory is bounded by
/// a few chunks, or documents where those are larger, for each thread. Where chunks end depends on the file alone.
/// @return false if it was stopped.
/// @throws of all errors the one that stands first in the files, whatever the threads; DocumentError with file and
///         line or byte, IoError.
bool tokenize_files(const Tokenizer& tokenizer, const TokenizeOptions& options, TokenLedger& ledger,
                    ProgressBar& progress);

}  // namespace athanor
