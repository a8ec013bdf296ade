#pragma once
// Files to tokens, by many threads: the first of the three steps of preparing.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/console.h"
#include "data/documents.h"
#include "data/manifest.h"
#include "data/token_stream.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {

struct TokenizeOptions {
  DocumentOptions documents;
  uint32_t eos_id = 0;
  int num_threads = 1;
  uint64_t chunk_bytes = uint64_t{1} << 19;  ///< what a thread takes at once: some 50 ms of work
};

struct TokenizeCounts {
  std::vector<InputEntry> inputs;  ///< one for each file, in their order
  int64_t text_bytes = 0;
  SkipCounts skipped;
};

/// Each file becomes one token array, its documents in order with `eos_id` after each; the arrays follow one another
/// in `out` in the order of `files`. An empty document is an `eos_id` alone.
///
/// Any number of threads works on one file, since only cutting it into records is done in order. Memory is bounded by
/// a few chunks, or documents where those are larger, for each thread.
/// @throws of all errors the one that stands first in the files, whatever the threads; DocumentError with file and
///         line or byte, IoError.
TokenizeCounts tokenize_files(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                              const TokenizeOptions& options, TokenStream& out, ProgressBar& progress);

}  // namespace athanor
