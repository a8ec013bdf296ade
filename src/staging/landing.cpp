#include "staging/landing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "base/text.h"

namespace athanor::staging {
namespace fs = std::filesystem;

namespace {

constexpr size_t kBatch = 1024;          // small files that are synced and get their names together
constexpr uint64_t kSparseBlock = 4096;  // this many zeros are left out of a sparse file
constexpr int kReaders = 4;              // threads that compare what is there
constexpr const char* kRecordPrefix = "unpacked-";
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

// Identifies the state of a source file: parts of another state must not be mixed with it.
std::string part_name(const Entry& entry, uint64_t chunk_bytes) {
  return hash_hex(fmt::format("{}\n{}\n{}\n{}", entry.size, entry.mtime_ns, chunk_bytes, entry.path));
}

struct AbandonedError : Error {
  AbandonedError() : Error("the transfer ended before the archive was whole") {}
};

}  // namespace

Landing::Landing(const Manifest& manifest, const ChunkTable& table, const fs::path& target)
    : manifest_(manifest), table_(table), target_(target), present_(manifest.entries.size()) {}

Landing::~Landing() {
  leaving_ = true;
  wake_unpacking();
  if (unpacking_.joinable()) unpacking_.join();
}

std::exception_ptr Landing::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Landing::fail_with(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    failed_ = true;
  }
  wake_unpacking();
}

void Landing::wake_unpacking() {
  for (const auto& [entry, file] : longs_) {
    const std::lock_guard lock(file->mutex);
    file->grew.notify_all();
  }
}

// ---- what is there -------------------------------------------------------------------------------------------------

bool Landing::is_long(size_t entry) const {
  const Entry& it = manifest_.entries[entry];
  return it.kind == EntryKind::kArchive || it.size >= manifest_.chunk_bytes;
}

bool Landing::is_there(const Entry& entry, bool any_time) const {
  const auto found = target_.look(entry.path);
  if (!found) return false;
  if (entry.kind == EntryKind::kFolder) {
    ATHANOR_CHECK_DATA(S_ISDIR(found->st_mode), "{} is in the way of a folder; remove it, or give another --to",
                       target_.shown(entry.path));
    return true;
  }
  ATHANOR_CHECK_DATA(!S_ISDIR(found->st_mode), "{} is a folder in the way of a file; remove it, or give another --to",
                     target_.shown(entry.path));
  if (entry.kind == EntryKind::kLink) return S_ISLNK(found->st_mode);  // its target is compared when links are made
  return S_ISREG(found->st_mode) && static_cast<uint64_t>(found->st_size) == entry.size &&
         (any_time || mtime_ns_of(*found) == entry.mtime_ns);
}

std::string Landing::record_name(const Entry& archive) const { return kRecordPrefix + hash_hex(archive.path); }

// An archive is not sent if its record is that of this archive and all that it lists is there.
bool Landing::is_unpacked(const Entry& archive) const {
  const fs::path record = target_.path() / kStateFolder / record_name(archive);
  std::error_code ignored;
  if (!fs::is_regular_file(record, ignored)) return false;
  const Manifest unpacked = decode_manifest(read_file(record), printable(record.string()));
  return !unpacked.entries.empty() && unpacked.entries[0] == archive &&
         std::all_of(unpacked.entries.begin() + 1, unpacked.entries.end(),
                     [&](const Entry& entry) { return is_there(entry, false); });
}

ChunkSet Landing::find_lacking(const std::vector<HashWords>* hashes) {
  for (size_t i = 0; i < present_.size(); ++i) {
    const Entry& entry = manifest_.entries[i];
    present_[i] = entry.kind == EntryKind::kArchive ? is_unpacked(entry) : is_there(entry, hashes != nullptr);
  }
  if (hashes) compare_bytes(*hashes);
  ChunkSet lacking(table_.size());
  for (size_t i = 0; i < present_.size(); ++i) {
    if (present_[i] || !manifest_.entries[i].has_content()) continue;
    const auto [begin, end] = table_.chunks_of(i);
    for (uint64_t chunk = begin; chunk < end; ++chunk) lacking.add(chunk);
    if (!is_long(i)) continue;
    find_parts(i);
    for (uint64_t chunk = begin; chunk < end; ++chunk)
      if (longs_[i]->has_chunk[chunk - begin]) lacking.remove(chunk);
  }
  check_room(lacking);
  return lacking;
}

// Files of which a chunk differs are sent again. An archive is compared by its record alone: its own bytes are not
// here.
void Landing::compare_bytes(const std::vector<HashWords>& hashes) {
  std::vector<char> differs(table_.size());
  parallel_for(kReaders, static_cast<int64_t>(table_.size()), [&](int64_t chunk) {
    const auto pieces = table_.pieces(static_cast<uint64_t>(chunk));
    if (std::none_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return present_[piece.entry]; })) return;
    ChunkBuffer buffer(table_.bytes(static_cast<uint64_t>(chunk)));
    bool is_whole = true;
    for (const Piece& piece : pieces) {
      const Entry& entry = manifest_.entries[piece.entry];
      if (entry.kind == EntryKind::kArchive && present_[piece.entry]) return;
      const fs::path path = target_.path() / entry.path;
      const OpenedFile file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
      is_whole =
          is_whole && file.fd() >= 0 && read_fully(file.fd(), buffer.payload() + piece.at, piece.bytes, piece.offset);
    }
    if (is_whole) buffer.seal(static_cast<uint64_t>(chunk), table_.bytes(static_cast<uint64_t>(chunk)));
    differs[static_cast<size_t>(chunk)] = !is_whole || buffer.header().hash != hashes[static_cast<size_t>(chunk)];
  });
  for (size_t i = 0; i < present_.size(); ++i) {
    const auto [begin, end] = table_.chunks_of(i);
    for (uint64_t chunk = begin; chunk < end; ++chunk)
      if (differs[chunk]) present_[i] = false;
  }
}

void Landing::find_parts(size_t entry) {
  const Entry& it = manifest_.entries[entry];
  auto file = std::make_unique<LongFile>();
  file->part = part_name(it, manifest_.chunk_bytes);
  file->journal_name = file->part + kJournalEnding;
  const auto [begin, end] = table_.chunks_of(entry);
  file->has_chunk.resize(end - begin);
  file->num_left = end - begin;
  std::error_code ignored;
  const fs::path journal = target_.path() / kStateFolder / file->journal_name;
  const auto part = target_.open_part(file->part, O_RDONLY);
  const std::string lines = part && fs::is_regular_file(journal, ignored) ? read_file(journal) : "";
  std::vector<std::pair<Piece, HashWords>> written;
  for (size_t at = 0; at + sizeof(JournalEntry) <= lines.size(); at += sizeof(JournalEntry)) {
    JournalEntry line;
    std::memcpy(&line, lines.data() + at, sizeof line);
    if (line.chunk >= end - begin) continue;
    for (const Piece& piece : table_.pieces(begin + line.chunk))
      if (piece.entry == entry) written.push_back({piece, line.hash});
  }
  std::vector<char> is_good(written.size());
  parallel_for(kReaders, static_cast<int64_t>(written.size()), [&](int64_t i) {
    const auto& [piece, hash] = written[static_cast<size_t>(i)];
    const auto bytes = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);
    is_good[static_cast<size_t>(i)] =
        read_fully(part->fd(), bytes.get(), piece.bytes, piece.offset) && hash_of(bytes.get(), piece.bytes) == hash;
  });
  // Holes of a sparse file are not written: its part must have zeros there.
  if (it.is_sparse && std::find(is_good.begin(), is_good.end(), 0) != is_good.end()) {
    target_.remove_part(file->part);
    target_.remove_part(file->journal_name);
    std::fill(is_good.begin(), is_good.end(), 0);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    const auto chunk = written[i].first.offset / manifest_.chunk_bytes;
    if (!is_good[i] || file->has_chunk[chunk]) continue;
    file->has_chunk[chunk] = true;
    --file->num_left;
  }
  longs_[entry] = std::move(file);
}

void Landing::check_room(const ChunkSet& lacking) const {
  uint64_t needed = 0;
  for (const uint64_t chunk : lacking.list()) {
    for (const Piece& piece : table_.pieces(chunk)) {
      const Entry& entry = manifest_.entries[piece.entry];
      if (!present_[piece.entry] && !entry.is_sparse) needed += piece.bytes;
      if (entry.kind == EntryKind::kArchive) needed += piece.bytes;  // it is there twice, packed and unpacked
    }
  }
  const uint64_t room = free_disk_bytes(target_.path());
  ATHANOR_CHECK(needed <= room, "{} has room for {} and needs {}; free some space, or give another --to",
                printable(target_.path().string()), format_bytes(static_cast<double>(room)),
                format_bytes(static_cast<double>(needed)));
}

// ---- what comes ----------------------------------------------------------------------------------------------------

void Landing::begin() {
  for (size_t i = 0; i < present_.size(); ++i)
    if (manifest_.entries[i].kind == EntryKind::kFolder) target_.make_folder(manifest_.entries[i].path);
  bool has_archive = false;
  for (const auto& [entry, file] : longs_) {
    file->file = target_.open_part(file->part, O_RDWR | O_CREAT);
    if (!file->file) fail_errno("cannot create a part of", target_.shown(manifest_.entries[entry].path));
    if (::ftruncate(file->file->fd(), static_cast<off_t>(manifest_.entries[entry].size)) != 0)
      fail_errno("cannot write", target_.shown(manifest_.entries[entry].path));
    file->journal = std::make_unique<AppendFile>(target_.path() / kStateFolder / file->journal_name);
    has_archive |= manifest_.entries[entry].kind == EntryKind::kArchive;
    if (file->num_left == 0) complete_long(entry, *file);
  }
  if (has_archive) unpacking_ = std::thread([this] { unpack_all(); });
}

void Landing::write(ChunkBuffer& buffer) {
  if (failed_) return;
  try {
    buffer.expand_zeros();
    for (const Piece& piece : table_.pieces(buffer.header().chunk)) {
      if (present_[piece.entry]) continue;
      write_piece(piece, buffer.payload() + piece.at);
      bytes_written_ += piece.bytes;
    }
  } catch (...) {
    fail_with(std::current_exception());
  }
  fault_point("yeet.chunk");
}

void Landing::write_piece(const Piece& piece, const std::byte* bytes) {
  if (const int injected = fault_errno("yeet.write")) {
    errno = injected;
    fail_errno("cannot write", target_.shown(manifest_.entries[piece.entry].path));
  }
  is_long(piece.entry) ? write_long(piece, bytes) : write_short(piece, bytes);
}

void Landing::put(int fd, const Piece& piece, const std::byte* bytes) const {
  const Entry& entry = manifest_.entries[piece.entry];
  const uint64_t step = entry.is_sparse ? kSparseBlock : piece.bytes;
  for (uint64_t at = 0; at < piece.bytes; at += step) {
    const uint64_t count = std::min(step, piece.bytes - at);
    const bool is_hole =
        entry.is_sparse && std::all_of(bytes + at, bytes + at + count, [](std::byte b) { return b == std::byte{0}; });
    if (!is_hole && !write_fully(fd, bytes + at, count, piece.offset + at))
      fail_errno("cannot write", target_.shown(entry.path));
  }
}

void Landing::write_long(const Piece& piece, const std::byte* bytes) {
  LongFile& file = *longs_.at(piece.entry);
  put(file.file->fd(), piece, bytes);
  // The kernel begins to write it back, so that the sync at the end finds little left.
  ::sync_file_range(file.file->fd(), static_cast<off_t>(piece.offset), static_cast<off_t>(piece.bytes),
                    SYNC_FILE_RANGE_WRITE);
  const JournalEntry line{piece.offset / manifest_.chunk_bytes, hash_of(bytes, piece.bytes)};
  bool is_whole;
  {
    const std::lock_guard lock(file.mutex);
    if (file.has_chunk[line.chunk]) return;  // sent again because another node lacks it
    file.journal->append({reinterpret_cast<const char*>(&line), sizeof line});
    file.has_chunk[line.chunk] = true;
    is_whole = --file.num_left == 0;
    file.grew.notify_all();
  }
  if (is_whole) complete_long(piece.entry, file);
}

void Landing::set_facts(int fd, const Entry& entry) const {
  const struct timespec times[2] = {{0, UTIME_OMIT}, timespec_of(entry.mtime_ns)};
  if (::fchmod(fd, entry.mode) != 0 || ::futimens(fd, times) != 0)
    fail_errno("cannot set mode and time of", target_.shown(entry.path));
}

void Landing::complete_long(size_t entry, LongFile& file) {
  const Entry& it = manifest_.entries[entry];
  if (it.kind == EntryKind::kArchive) return;  // it is read from its part, which then goes
  set_facts(file.file->fd(), it);
  if (::fsync(file.file->fd()) != 0) fail_errno("cannot sync", target_.shown(it.path));
  fault_point("yeet.place");
  target_.place(file.part, it.path);
  target_.remove_part(file.journal_name);
  file.journal.reset();
  file.file.reset();
}

void Landing::write_short(const Piece& piece, const std::byte* bytes) {
  const Entry& entry = manifest_.entries[piece.entry];
  const std::string part = part_name(entry, manifest_.chunk_bytes);
  const auto file = target_.open_part(part, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) fail_errno("cannot create a part of", target_.shown(entry.path));
  if (entry.is_sparse && ::ftruncate(file->fd(), static_cast<off_t>(entry.size)) != 0)
    fail_errno("cannot write", target_.shown(entry.path));
  put(file->fd(), piece, bytes);
  set_facts(file->fd(), entry);
  std::vector<Small> batch;
  {
    const std::lock_guard lock(mutex_);
    batch_.push_back({part, piece.entry});
    if (batch_.size() >= kBatch) batch.swap(batch_);
  }
  if (!batch.empty()) place_batch(std::move(batch));
}

void Landing::place_batch(std::vector<Small> batch) {
  target_.sync();  // one for all: a sync for each would cost more than writing them
  fault_point("yeet.place");
  for (const Small& one : batch) target_.place(one.part, manifest_.entries[one.entry].path);
}

// ---- archives ------------------------------------------------------------------------------------------------------

void Landing::unpack_all() {
  try {
    for (const auto& [entry, file] : longs_)
      if (manifest_.entries[entry].kind == EntryKind::kArchive) unpack(entry);
  } catch (const AbandonedError&) {
    // the reason is known elsewhere
  } catch (...) {
    fail_with(std::current_exception());
  }
}

void Landing::unpack(size_t entry) {
  const Entry& archive = manifest_.entries[entry];
  LongFile& file = *longs_.at(entry);
  const uint64_t block = std::min<uint64_t>(manifest_.chunk_bytes, 1 << 20);
  std::string bytes(block, '\0');
  uint64_t at = 0;
  // Reads what is on the disk at the front of the part, and waits there for more.
  const auto next_bytes = [&]() -> std::string_view {
    {
      std::unique_lock lock(file.mutex);
      const auto whole = [&] {
        while (file.whole_bytes < archive.size && file.has_chunk[file.whole_bytes / manifest_.chunk_bytes])
          file.whole_bytes = std::min(file.whole_bytes + manifest_.chunk_bytes, archive.size);
        return file.whole_bytes;
      };
      file.grew.wait(lock, [&] { return leaving_ || failed_ || at == archive.size || whole() > at; });
      if (leaving_ || failed_) throw AbandonedError();
    }
    const uint64_t count = std::min(block, file.whole_bytes - at);
    if (count > 0 && !read_fully(file.file->fd(), bytes.data(), count, at))
      fail_errno("cannot read the part of", target_.shown(archive.path));
    at += count;
    return {bytes.data(), count};
  };
  place_unpacked(archive, unpack_archive(next_bytes, archive.path, file.part + "-", target_));
  while (!next_bytes().empty()) {  // what follows the end of the archive
  }
}

void Landing::place_unpacked(const Entry& archive, const std::vector<UnpackedEntry>& unpacked) {
  target_.sync();
  fault_point("yeet.place");
  for (const auto& [entry, part] : unpacked) {
    if (entry.kind == EntryKind::kFolder) target_.make_folder(entry.path);
    if (entry.kind == EntryKind::kFile) target_.place(part, entry.path);
  }
  for (const auto& [entry, part] : unpacked)
    if (entry.kind == EntryKind::kLink) target_.make_link(entry.path, entry.target);
  Manifest record{1, {archive}};
  for (auto one = unpacked.rbegin(); one != unpacked.rend(); ++one)
    if (one->entry.kind == EntryKind::kFolder) target_.set_mode(one->entry.path, one->entry.mode);
  for (const auto& one : unpacked) record.entries.push_back(one.entry);
  write_file_atomically(target_.path() / kStateFolder / record_name(archive), encode_manifest(record));
}

// ---- the end -------------------------------------------------------------------------------------------------------

void Landing::finish() {
  if (unpacking_.joinable()) unpacking_.join();
  if (const auto failure = this->failure()) std::rethrow_exception(failure);
  place_rest();
  target_.sync();
  remove_parts();
}

void Landing::place_rest() {
  for (size_t i = 0; i < present_.size(); ++i) {
    const Entry& entry = manifest_.entries[i];
    if (entry.kind != EntryKind::kFile || entry.size > 0 || present_[i]) continue;
    const std::string part = part_name(entry, manifest_.chunk_bytes);
    const auto file = target_.open_part(part, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file) fail_errno("cannot create a part of", target_.shown(entry.path));
    set_facts(file->fd(), entry);
    batch_.push_back({part, i});
  }
  if (!batch_.empty()) place_batch(std::exchange(batch_, {}));
  for (size_t i = present_.size(); i-- > 0;) {  // a folder after what is in it
    const Entry& entry = manifest_.entries[i];
    if (entry.kind == EntryKind::kLink) target_.make_link(entry.path, entry.target);
    if (entry.kind == EntryKind::kFolder || (entry.kind == EntryKind::kFile && present_[i]))
      target_.set_mode(entry.path, entry.mode);
    if (entry.kind == EntryKind::kFile && present_[i]) target_.set_mtime(entry.path, entry.mtime_ns);
  }
}

// Also those of transfers that were never completed: they would stay for ever.
void Landing::remove_parts() const {
  std::error_code ignored;
  std::vector<std::string> parts;
  for (const auto& one : fs::directory_iterator(target_.path() / kStateFolder, ignored)) {
    const std::string name = one.path().filename().string();
    if (name != "lock" && !name.starts_with(kRecordPrefix)) parts.push_back(name);
  }
  for (const std::string& part : parts) target_.remove_part(part);
}

}  // namespace athanor::staging
