#include "staging/long_part.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/parallel_for.h"

namespace athanor::staging {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kSparseBlock = 4096;  // this many zeros are left out of a sparse file
constexpr int kReaders = 4;              // threads that compare what is there
constexpr const char* kJournalEnding = ".chunks";

/// A line of a journal.
struct JournalEntry {
  uint64_t chunk;  ///< its number in the file, from 0
  HashWords hash;
};

HashWords hash_of(const std::byte* bytes, uint64_t count) {
  Hasher hasher;
  hasher.update(bytes, count);
  return hasher.words();
}

}  // namespace

std::string part_name(const Entry& entry, uint64_t chunk_bytes) {
  return hash_hex(fmt::format("{}\n{}\n{}\n{}", entry.size, entry.mtime_ns, chunk_bytes, entry.path));
}

void write_piece(const TargetFolder& target, int fd, const Entry& entry, const Piece& piece, const std::byte* bytes) {
  const uint64_t step = entry.is_sparse ? kSparseBlock : piece.bytes;
  for (uint64_t at = 0; at < piece.bytes; at += step) {
    const uint64_t count = std::min(step, piece.bytes - at);
    const bool is_hole =
        entry.is_sparse && std::all_of(bytes + at, bytes + at + count, [](std::byte b) { return b == std::byte{0}; });
    if (!is_hole && !write_fully(fd, bytes + at, count, piece.offset + at))
      fail_errno("cannot write", target.shown(entry.path));
  }
}

void set_facts(const TargetFolder& target, int fd, const Entry& entry) {
  const struct timespec times[2] = {{0, UTIME_OMIT}, timespec_of(entry.mtime_ns)};
  if (::fchmod(fd, entry.mode) != 0 || ::futimens(fd, times) != 0)
    fail_errno("cannot set mode and time of", target.shown(entry.path));
}

LongPart::LongPart(const Manifest& manifest, const ChunkTable& table, const TargetFolder& target, size_t entry)
    : manifest_(manifest), table_(table), target_(target), entry_(entry),
      part_(part_name(manifest.entries[entry], manifest.chunk_bytes)), journal_name_(part_ + kJournalEnding) {
  const auto [begin, end] = table.chunks_of(entry);
  has_chunk_.resize(end - begin);
  num_left_ = end - begin;
  const auto part = target.open_part(part_, O_RDONLY);
  if (!part) return;
  const std::vector<WrittenPiece> written = read_journal();
  std::vector<char> is_good(written.size());
  parallel_for(kReaders, static_cast<int64_t>(written.size()), [&](int64_t i) {
    const auto& [piece, hash] = written[static_cast<size_t>(i)];
    const auto bytes = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);
    is_good[static_cast<size_t>(i)] =
        read_fully(part->fd(), bytes.get(), piece.bytes, piece.offset) && hash_of(bytes.get(), piece.bytes) == hash;
  });
  // Holes of a sparse file are not written: its part must have zeros there.
  if (manifest.entries[entry].is_sparse && std::find(is_good.begin(), is_good.end(), 0) != is_good.end()) {
    target.remove_part(part_);
    target.remove_part(journal_name_);
    return;
  }
  for (size_t i = 0; i < written.size(); ++i) {
    const auto chunk = written[i].first.offset / manifest.chunk_bytes;
    if (!is_good[i] || has_chunk_[chunk]) continue;
    has_chunk_[chunk] = true;
    --num_left_;
  }
}

std::vector<LongPart::WrittenPiece> LongPart::read_journal() const {
  std::error_code ignored;
  const fs::path journal = target_.path() / kStateFolder / journal_name_;
  const std::string lines = fs::is_regular_file(journal, ignored) ? read_file(journal) : "";
  const uint64_t begin = table_.chunks_of(entry_).first;
  std::vector<WrittenPiece> written;
  for (size_t at = 0; at + sizeof(JournalEntry) <= lines.size(); at += sizeof(JournalEntry)) {
    JournalEntry line;
    std::memcpy(&line, lines.data() + at, sizeof line);
    if (line.chunk >= has_chunk_.size()) continue;
    for (const Piece& piece : table_.pieces(begin + line.chunk))
      if (piece.entry == entry_) written.push_back({piece, line.hash});
  }
  return written;
}

bool LongPart::open() {
  const Entry& entry = manifest_.entries[entry_];
  file_ = target_.open_part(part_, O_RDWR | O_CREAT);
  if (!file_) fail_errno("cannot create a part of", target_.shown(entry.path));
  if (::ftruncate(file_->fd(), static_cast<off_t>(entry.size)) != 0)
    fail_errno("cannot write", target_.shown(entry.path));
  journal_ = std::make_unique<AppendFile>(target_.path() / kStateFolder / journal_name_);
  return num_left_ == 0;
}

bool LongPart::write(const Piece& piece, const std::byte* bytes) {
  write_piece(target_, file_->fd(), manifest_.entries[entry_], piece, bytes);
  // The kernel begins to write it back, so that the sync at the end finds little left.
  ::sync_file_range(file_->fd(), static_cast<off_t>(piece.offset), static_cast<off_t>(piece.bytes),
                    SYNC_FILE_RANGE_WRITE);
  const JournalEntry line{piece.offset / manifest_.chunk_bytes, hash_of(bytes, piece.bytes)};
  const std::lock_guard lock(mutex_);
  if (has_chunk_[line.chunk]) return false;  // sent again because another node lacks it
  journal_->append({reinterpret_cast<const char*>(&line), sizeof line});
  has_chunk_[line.chunk] = true;
  grew_.notify_all();
  return --num_left_ == 0;
}

uint64_t LongPart::wait_for_front(uint64_t at, const std::function<bool()>& gives_up) {
  const uint64_t size = manifest_.entries[entry_].size;
  std::unique_lock lock(mutex_);
  grew_.wait(lock, [&] {
    while (front_bytes_ < size && has_chunk_[front_bytes_ / manifest_.chunk_bytes])
      front_bytes_ = std::min(front_bytes_ + manifest_.chunk_bytes, size);
    return gives_up() || at == size || front_bytes_ > at;
  });
  return front_bytes_;
}

void LongPart::wake() {
  const std::lock_guard lock(mutex_);
  grew_.notify_all();
}

void LongPart::close() {
  target_.remove_part(journal_name_);
  journal_.reset();
  file_.reset();
}

}  // namespace athanor::staging
