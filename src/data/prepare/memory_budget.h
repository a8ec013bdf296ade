#pragma once
// How much of --memory each part of preparing may take. All of the process counts: what the kernel calls its resident
// memory, the tokenizer and the program itself included.

#include <cstdint>
#include <string>

namespace athanor {

struct MemoryBudget {
  uint64_t total = 0;
  int num_threads = 1;  ///< as many as asked for, or fewer where they would not fit
  uint64_t max_document_bytes = 0;
  uint64_t shared_document_bytes = 0;  ///< only one larger than this is turned into tokens at a time

  /// What gathering may take, once tokenizing is over and its memory given back.
  uint64_t for_gathering() const;
  /// What to do about a document that is too large.
  std::string large_document_remedy() const;
};

struct MemoryNeeds {
  uint64_t asked = 0;  ///< 0: half of what is available now
  int num_threads = 1;
  uint64_t chunk_bytes = 0;
  uint64_t table_bytes = 0;       ///< of the table of chunks
  bool by_sentencepiece = false;  ///< whose library takes far more for a document than ours
};

/// Call it once the tokenizer is loaded and the inputs are listed: these count as they are.
/// @throws ConfigError with the number that is needed.
MemoryBudget plan_memory(const MemoryNeeds& needs);

}  // namespace athanor
