#include "staging/landing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/text.h"
#include "staging/present_files.h"

namespace athanor::staging {
namespace fs = std::filesystem;

namespace {

constexpr size_t kBatch = 1024;  // small files that are synced and get their names together

struct AbandonedError : Error {
  AbandonedError() : Error("the transfer ended before the archive was whole") {}
};

}  // namespace

Landing::Landing(const Manifest& manifest, const ChunkTable& table, const fs::path& target)
    : manifest_(manifest), table_(table), target_(target) {}

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
  for (const auto& [entry, part] : longs_) part->wake();
}

// ---- what is there -------------------------------------------------------------------------------------------------

bool Landing::is_long(size_t entry) const {
  const Entry& file = manifest_.entries[entry];
  return file.kind == EntryKind::kArchive || file.size >= manifest_.chunk_bytes;
}

ChunkSet Landing::find_lacking(const std::vector<HashWords>* hashes) {
  present_ = find_present(manifest_, table_, target_, hashes);
  ChunkSet lacking(table_.size());
  for (size_t i = 0; i < present_.size(); ++i) {
    if (present_[i] || !manifest_.entries[i].has_content()) continue;
    const auto [begin, end] = table_.chunks_of(i);
    for (uint64_t chunk = begin; chunk < end; ++chunk) lacking.add(chunk);
    if (!is_long(i)) continue;
    longs_[i] = std::make_unique<LongPart>(manifest_, table_, target_, i);
    for (uint64_t chunk = begin; chunk < end; ++chunk)
      if (longs_[i]->has(chunk - begin)) lacking.remove(chunk);
  }
  check_room(lacking);
  return lacking;
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
  for (const auto& [entry, part] : longs_) {
    has_archive |= manifest_.entries[entry].kind == EntryKind::kArchive;
    if (part->open()) complete_long(entry, *part);
  }
  if (has_archive) unpacking_ = std::thread([this] { unpack_all(); });
}

void Landing::write(ChunkBuffer& buffer) {
  if (failed_) return;
  try {
    buffer.expand_zeros();
    for (const Piece& piece : table_.pieces(buffer.header().chunk)) {
      if (present_[piece.entry]) continue;
      land(piece, buffer.payload() + piece.at);
      bytes_written_ += piece.bytes;
    }
  } catch (...) {
    fail_with(std::current_exception());
  }
  fault_point("yeet.chunk");
}

void Landing::land(const Piece& piece, const std::byte* bytes) {
  if (const int injected = fault_errno("yeet.write")) {
    errno = injected;
    fail_errno("cannot write", target_.shown(manifest_.entries[piece.entry].path));
  }
  if (!is_long(piece.entry)) return write_short(piece, bytes);
  LongPart& part = *longs_.at(piece.entry);
  if (part.write(piece, bytes)) complete_long(piece.entry, part);
}

void Landing::complete_long(size_t entry, LongPart& part) {
  const Entry& file = manifest_.entries[entry];
  if (file.kind == EntryKind::kArchive) return;  // it is read from its part, which then goes
  set_facts(target_, part.fd(), file);
  if (::fsync(part.fd()) != 0) fail_errno("cannot sync", target_.shown(file.path));
  fault_point("yeet.place");
  target_.place(part.name(), file.path);
  part.close();
}

void Landing::write_short(const Piece& piece, const std::byte* bytes) {
  const Entry& entry = manifest_.entries[piece.entry];
  const std::string part = part_name(entry, manifest_.chunk_bytes);
  const auto file = target_.open_part(part, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) fail_errno("cannot create a part of", target_.shown(entry.path));
  if (entry.is_sparse && ::ftruncate(file->fd(), static_cast<off_t>(entry.size)) != 0)
    fail_errno("cannot write", target_.shown(entry.path));
  write_piece(target_, file->fd(), entry, piece, bytes);
  set_facts(target_, file->fd(), entry);
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
  LongPart& part = *longs_.at(entry);
  const uint64_t block = std::min<uint64_t>(manifest_.chunk_bytes, 1 << 20);
  std::string bytes(block, '\0');
  uint64_t at = 0;
  // Reads what is on the disk at the front of the part, and waits there for more.
  const auto next_bytes = [&]() -> std::string_view {
    const auto gives_up = [&] { return leaving_ || failed_; };
    const uint64_t front = part.wait_for_front(at, gives_up);
    if (gives_up()) throw AbandonedError();
    const uint64_t count = std::min(block, front - at);
    if (count > 0 && !read_fully(part.fd(), bytes.data(), count, at))
      fail_errno("cannot read the part of", target_.shown(archive.path));
    at += count;
    return {bytes.data(), count};
  };
  place_unpacked(archive, unpack_archive(next_bytes, archive.path, part.name() + "-", target_));
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
    set_facts(target_, file->fd(), entry);
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
