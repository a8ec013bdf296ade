#include "prepare/memory_budget.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "documents/attribute_records.h"
#include "documents/records.h"
#include "documents/selection.h"
#include "documents/zstd_frame.h"

namespace athanor::inline preparation {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Code that has not run yet, the allocator's gaps, stacks.
constexpr uint64_t kReserve = 24 * kMiB;

// Memory of each thread for any documents: the tokenizer's word cache, a decompressor's window, a chunk's records.
constexpr uint64_t kThreadBytes = 16 * kMiB;

// The largest window in these, that of zstd up to level 21.
constexpr uint64_t kUsualWindow = 8 * kMiB;

// Frames behind a file's first one, and those of standard input, are not known beforehand: they may have windows up to
// this, which zstd itself takes for harmless.
constexpr uint64_t kUnknownWindow = 128 * kMiB;

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

uint64_t window_of(const std::filesystem::path& file) {
  const auto format = input_format(file);
  return format && format->compression == Compression::kZstd ? first_zstd_window(file) : 0;
}

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

ZstdWindows find_zstd_windows(const std::vector<InputFile>& files, const DocumentOptions& options) {
  ZstdWindows windows;
  uint64_t largest = 0;
  const auto names = options.selection ? options.selection->options().attributes : std::vector<std::string>();
  for (const auto& file : files) {
    uint64_t beyond = 0;
    const auto add = [&](const std::filesystem::path& path) {
      const uint64_t window = window_of(path);
      if (window > kUsualWindow) beyond += window;
      if (window > largest) windows.largest_file = path.string();
      largest = std::max(largest, window);
    };
    add(file.path);
    for (const auto& name : names) add(find_attribute_file(file.path, name));
    if (beyond > 0) windows.bytes.push_back(beyond);
  }
  std::sort(windows.bytes.begin(), windows.bytes.end(), std::greater<>());
  return windows;
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
  const auto& windows = needs.windows.bytes;
  const uint64_t largest_window = windows.empty() ? 0 : windows.front();
  const uint64_t needed = std::max(fixed + least + largest_window, peak_resident_bytes());
  ATHANOR_CHECK(
      budget.total >= needed,
      "--memory {} is too small: the program with this tokenizer and list of files needs at least {} MiB ({}M){}",
      shown(budget.total), (needed + kMiB - 1) / kMiB, (needed + kMiB - 1) / kMiB,
      largest_window == 0
          ? ""
          : fmt::format(", {} of it for the zstd window of {}", shown(largest_window), needs.windows.largest_file));
  const uint64_t per_more_thread = per_thread + kPerReadByte * kMinDocumentBytes;
  // Each thread may have one of the files open, in the worst case those with the largest windows.
  uint64_t window_bytes = largest_window;
  while (budget.num_threads < needs.num_threads) {
    const auto threads = static_cast<uint64_t>(budget.num_threads);
    const uint64_t more = windows.size() > threads ? windows[threads] : 0;
    if (fixed + least + threads * per_more_thread + window_bytes + more > budget.total) break;
    window_bytes += more;
    ++budget.num_threads;
  }
  budget.max_zstd_window = std::min(kMaxZstdWindow, std::max(kUnknownWindow, largest_window));
  const uint64_t left = budget.total - fixed - window_bytes;
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

}  // namespace athanor::inline preparation
