#include "data/memory_budget.h"

#include <malloc.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "data/records.h"

namespace athanor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Code that was not run yet, the allocator's gaps, stacks.
constexpr uint64_t kReserve = 24 * kMiB;

// Of each thread whatever the documents: the tokenizer's word cache, a decompressor's window, a chunk's records.
constexpr uint64_t kThreadBytes = 16 * kMiB;

// What a byte of a document takes at most while it is turned into tokens: the record and its text, each of which may
// have grown to twice its size (4), ids of four bytes each that may have grown so too (8 where each byte is a token),
// the spill's copy of them (2), and the merges of a word that is as long as the document.
constexpr uint64_t kBytesPerByte = 16;

constexpr uint64_t kMinDocumentBytes = kMiB;

std::string shown(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

uint64_t for_one_thread(uint64_t chunk_bytes, uint64_t document_bytes) {
  return kThreadBytes + kBytesPerByte * (chunk_bytes + document_bytes);
}

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

MemoryBudget plan_memory(uint64_t asked, int num_threads, uint64_t chunk_bytes, uint64_t table_bytes) {
  const uint64_t here = resident_bytes(), available = available_memory_bytes();
  MemoryBudget budget;
  budget.total = asked > 0 ? asked : here + available / 2;
  if (asked > here + available)
    log::warn("--memory {} is more than the {} there are", shown(asked), shown(here + available));
  const uint64_t fixed = here + kReserve + table_bytes;
  const uint64_t least = for_one_thread(chunk_bytes, kMinDocumentBytes);
  // What was taken at most so far, to read the tokenizer, is over: but it must have fitted too.
  const uint64_t needed = std::max(fixed + least, peak_resident_bytes());
  ATHANOR_CHECK(
      budget.total >= needed,
      "--memory {} is too small: the program with this tokenizer and list of files needs at least {} MiB ({}M)",
      shown(budget.total), (needed + kMiB - 1) / kMiB, (needed + kMiB - 1) / kMiB);
  const uint64_t left = budget.total - fixed;
  budget.num_threads = static_cast<int>(std::clamp<uint64_t>(left / least, 1, static_cast<uint64_t>(num_threads)));
  const uint64_t each = left / static_cast<uint64_t>(budget.num_threads);
  // Rounded, so that the limit does not move with each page that the program happens to hold.
  const uint64_t document = (each - kThreadBytes) / kBytesPerByte - chunk_bytes;
  budget.max_document_bytes = std::min(kMaxDocumentBytes, document - document % (std::bit_floor(document) / 4));
  return budget;
}

}  // namespace athanor
