#include "prepare/memory_budget.h"

#include <malloc.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "documents/records.h"

namespace athanor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Code that has not run yet, the allocator's gaps, stacks.
constexpr uint64_t kReserve = 24 * kMiB;

// Memory of each thread for any documents: the tokenizer's word cache, a decompressor's window, a chunk's records.
constexpr uint64_t kThreadBytes = 16 * kMiB;

// Memory for each byte of a chunk of small documents. The records and a text take 3. If each byte is a token, ids of
// four bytes take 10: their memory may have grown to twice their size, and the spill has a copy of them.
constexpr uint64_t kPerChunkByte = 16;

// Memory for each byte of one document while it becomes tokens. Measured with documents of 5 MB: prose takes 5; one
// word without an end takes 29, as the tokenizer must see it as a whole; libsentencepiece takes 190 to 250.
constexpr uint64_t kPerDocumentByte = 32, kPerDocumentByteOfSentencePiece = 256;

// Memory for each byte of a document that is only read, into a string that grows.
constexpr uint64_t kPerReadByte = 3;

constexpr uint64_t kConcurrentPart = 8;

constexpr uint64_t kMinDocumentBytes = uint64_t{256} << 10;

std::string shown(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

uint64_t MemoryBudget::for_gathering() const {
  ::malloc_trim(0);
  const uint64_t taken = resident_bytes() + kReserve;
  return total - std::min(total, taken);
}

std::string MemoryBudget::large_document_remedy() const {
  return fmt::format(
      "that is what --memory {} and {} thread{} leave for one; give a larger --memory{}, or pass over "
      "such documents with --on-error skip",
      shown(total), num_threads, num_threads == 1 ? "" : "s", num_threads == 1 ? "" : ", fewer --threads");
}

MemoryBudget plan_memory(const MemoryNeeds& needs) {
  const uint64_t here = resident_bytes(), available = available_memory_bytes();
  MemoryBudget budget;
  budget.total = needs.asked > 0 ? needs.asked : here + available / 2;
  if (needs.asked > here + available) {
    log::warn("--memory {} is more than the {} there are", shown(needs.asked), shown(here + available));
  }
  const uint64_t fixed = here + kReserve + needs.table_bytes;
  const uint64_t per_byte = needs.by_sentencepiece ? kPerDocumentByteOfSentencePiece : kPerDocumentByte;
  const uint64_t per_thread = kThreadBytes + kPerChunkByte * needs.chunk_bytes;
  // A thread, and one document at a time, which is read and then becomes tokens.
  const uint64_t least = per_thread + (per_byte + kPerReadByte) * kMinDocumentBytes;
  // The peak so far, while the tokenizer was read, has passed, but it must have fitted too.
  const uint64_t needed = std::max(fixed + least, peak_resident_bytes());
  ATHANOR_CHECK(
      budget.total >= needed,
      "--memory {} is too small: the program with this tokenizer and list of files needs at least {} MiB ({}M)",
      shown(budget.total), (needed + kMiB - 1) / kMiB, (needed + kMiB - 1) / kMiB);
  const uint64_t left = budget.total - fixed;
  const uint64_t per_more_thread = per_thread + kPerReadByte * kMinDocumentBytes;
  budget.num_threads = static_cast<int>(
      std::clamp<uint64_t>(1 + (left - least) / per_more_thread, 1, static_cast<uint64_t>(needs.num_threads)));
  // Part of the remaining memory is for documents that all threads have at the same time, and the rest is for one
  // larger document. So 4G with one thread suffice for a document of 100 MB.
  const auto threads = static_cast<uint64_t>(budget.num_threads);
  const uint64_t for_documents = left - threads * per_thread;
  budget.shared_document_bytes = for_documents / kConcurrentPart / threads / per_byte;
  const uint64_t largest =
      (for_documents - threads * per_byte * budget.shared_document_bytes) / (threads * kPerReadByte + per_byte);
  // The limit is rounded, so that it does not change with each page of the program.
  const uint64_t rounded = largest - largest % std::max<uint64_t>(1, std::bit_floor(largest) / 4);
  budget.max_document_bytes = std::min(kMaxDocumentBytes, rounded);
  return budget;
}

}  // namespace athanor
