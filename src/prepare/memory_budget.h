#pragma once
// Divides --memory among the parts of preparing. The limit is for the whole process: its resident memory as the kernel
// reports it, the tokenizer and the program itself included.

#include <cstdint>
#include <string>
#include <vector>

#include "documents/document_options.h"
#include "prepare/prepare_journal.h"

namespace athanor::inline preparation {

struct MemoryBudget {
  uint64_t total = 0;
  int num_threads = 1;  ///< the number requested, or fewer if they would not fit
  uint64_t max_document_bytes = 0;
  uint64_t shared_document_bytes = 0;  ///< documents larger than this are tokenized one at a time
  uint64_t max_zstd_window = 0;        ///< frames of larger windows are refused

  /// Returns the bytes that gathering may take. To be called after tokenizing; first gives free memory back to the
  /// system.
  uint64_t for_gathering() const;
  /// Returns the advice for the error about a document that is too large.
  std::string large_document_remedy() const;
};

/// The windows of zstd that files need beyond those that every thread has memory for.
struct ZstdWindows {
  std::vector<uint64_t> bytes;  ///< one for each such file, the largest first
  std::string largest_file;
};

/// Looks at the first frame of each file, and of the files of its attributes.
ZstdWindows find_zstd_windows(const std::vector<InputFile>& files, const DocumentOptions& options);

struct MemoryNeeds {
  uint64_t asked = 0;  ///< --memory in bytes; 0: the memory already in use plus half of what is available
  int num_threads = 1;
  uint64_t chunk_bytes = 0;
  uint64_t table_bytes = 0;       ///< size of the token stream's table of chunks
  bool by_sentencepiece = false;  ///< libsentencepiece takes far more memory per document than Athanor's tokenizers
  ZstdWindows windows = {};
};

/// Must be called after the tokenizer is loaded and the inputs are listed, because it counts the memory that they take.
/// @throws ConfigError with the number that is needed.
MemoryBudget plan_memory(const MemoryNeeds& needs);

}  // namespace athanor::inline preparation
