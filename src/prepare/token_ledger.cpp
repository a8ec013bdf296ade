#include "prepare/token_ledger.h"

#include "base/error.h"
#include "base/fault.h"
#include "documents/standard_input.h"

namespace athanor::inline preparation {
namespace {

// A crash of the machine loses at most this much of the spill.
constexpr uint64_t kSyncBytes = uint64_t{1} << 30;

}  // namespace

TokenLedger::TokenLedger(std::vector<InputFile> files, TokenStream& stream, PrepareJournal& journal)
    : files_(std::move(files)), stream_(stream), journal_(journal), states_(files_.size()) {
  for (size_t i = 0; i < files_.size(); ++i) {
    const auto* before = journal.file(files_[i].key);
    if (!before) continue;
    auto& state = states_[i];
    state.counts = before->counts;
    state.fingerprint = before->fingerprint;
    state.begun = true;
    state.finished = before->finished();
    for (const auto& chunk : before->chunks) {
      if (chunk.chunk >= state.done.size()) state.done.resize(chunk.chunk + 1);
      state.done[chunk.chunk] = true;
      stream.adopt(static_cast<uint32_t>(i + 1), chunk.chunk, chunk.num_tokens, {chunk.offset, chunk.hash});
    }
    num_files_before_ += state.finished ? 1 : 0;
    text_bytes_before_ += state.counts.text_bytes;
  }
}

bool TokenLedger::chunk_done(size_t file, uint32_t chunk) const {
  const auto& done = states_[file].done;
  return chunk < done.size() && done[chunk];
}

void TokenLedger::begin_file(size_t file) {
  auto& state = states_[file];
  if (std::exchange(state.begun, true)) return;
  state.fingerprint = file_fingerprint(files_[file].path);
  journal_.begin_file(files_[file], state.fingerprint);
}

void TokenLedger::add_chunk(size_t file, uint32_t chunk, std::span<const uint32_t> tokens, DocumentCounts counts) {
  const auto place = stream_.append(static_cast<uint32_t>(file + 1), chunk, tokens);
  counts.tokens = static_cast<int64_t>(tokens.size());
  journal_.add_chunk(files_[file].key, {chunk, static_cast<uint32_t>(tokens.size()), place.offset, place.hash}, counts);
  {
    const std::lock_guard lock(mutex_);
    states_[file].counts.add(counts);
  }
  fault_point("prepare.chunk");
  if ((unsynced_bytes_ += tokens.size() * sizeof(uint32_t)) < kSyncBytes) return;
  unsynced_bytes_ = 0;
  sync();
}

void TokenLedger::end_file(size_t file, uint32_t num_chunks) {
  ATHANOR_CHECK_DATA(is_standard_input(files_[file].path) || look_at_input(files_[file].path).key == files_[file].key,
                     "{} was changed while it was read; run the same command again once it stays as it is",
                     files_[file].path.string());
  journal_.end_file(files_[file].key, num_chunks);
}

void TokenLedger::sync() {
  journal_.sync([this] { stream_.sync(); });
}

std::vector<InputEntry> TokenLedger::entries() const {
  std::vector<InputEntry> entries;
  entries.reserve(files_.size());
  for (size_t i = 0; i < files_.size(); ++i) {
    const auto& state = states_[i];
    entries.push_back(
        {files_[i].path.string(), state.counts.documents, state.counts.tokens, files_[i].bytes, state.fingerprint});
  }
  return entries;
}

DocumentCounts TokenLedger::totals() const {
  DocumentCounts totals;
  for (const auto& state : states_) totals.add(state.counts);
  return totals;
}

}  // namespace athanor::inline preparation
