#pragma once
// Divides --memory among the parts of preparing. The limit is for the whole process: its resident memory as the kernel
// reports it, the tokenizer and the program itself included.

#include <cstdint>
#include <string>

namespace athanor {

struct MemoryBudget {
  uint64_t total = 0;
  int num_threads = 1;  ///< the number requested, or fewer if they would not fit
  uint64_t max_document_bytes = 0;
  uint64_t shared_document_bytes = 0;  ///< documents larger than this are tokenized one at a time

  /// Returns the bytes that gathering may take. To be called after tokenizing; first gives free memory back to the
  /// system.
  uint64_t for_gathering() const;
  /// Returns the advice for the error about a document that is too large.
  std::string large_document_remedy() const;
};

struct MemoryNeeds {
  uint64_t asked = 0;  ///< --memory in bytes; 0: the memory already in use plus half of what is available
  int num_threads = 1;
  uint64_t chunk_bytes = 0;
  uint64_t table_bytes = 0;       ///< size of the token stream's table of chunks
  bool by_sentencepiece = false;  ///< libsentencepiece takes far more memory per document than Athanor's tokenizers
};

/// Must be called after the tokenizer is loaded and the inputs are listed, because it counts the memory that they take.
/// @throws ConfigError with the number that is needed.
MemoryBudget plan_memory(const MemoryNeeds& needs);

}  // namespace athanor
