#include "checkpoint/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/opened_files.h"
#include "checkpoint/piece_index.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/safetensors.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 18;  // 1 MiB: it is in the cache from the hash to the copy
constexpr int64_t kReleasedElements = 16 * kBlockElements;

/// Copies a run to a target (slice b of the run) from bytes of a file, which may be at any address.
void copy_run(const TargetView& target, const CommonRun& run, const std::byte* from,
              std::optional<NotFinite>& not_finite) {
  note_not_finite(target.tensor, target.slice, run.in_b, from, run.count, not_finite);
  if (target.data) {
    std::memcpy(target.data + run.in_b, from, static_cast<size_t>(run.count) * sizeof(float));
    return;
  }
  constexpr int64_t kBlock = 4096;  // 16 KiB: it is on the stack, and in the nearest cache until it is written
  std::array<float, kBlock> block;
  for (int64_t at = 0; at < run.count; at += kBlock) {
    const auto length = static_cast<size_t>(std::min(kBlock, run.count - at));
    std::memcpy(block.data(), from + static_cast<size_t>(at) * sizeof(float), length * sizeof(float));
    target.write(run.in_b + at, std::span(block).first(length));
  }
}

void add_part(const Piece& piece, const LoadPlan::Use& use, ReadAhead& ahead) {
  const auto byte_at = [&](int64_t element) {
    return piece.byte_offset + static_cast<uint64_t>(element) * sizeof(float);
  };
  ahead.add(*piece.file, byte_at(use.first), byte_at(use.end));
}

// What load_verified reads, in its order.
void add_all(const std::vector<Piece>& pieces, const LoadPlan& plan, const std::vector<bool>& hashed,
             ReadAhead& ahead) {
  auto use = plan.uses.begin();
  for (size_t i = 0; i < hashed.size(); ++i) {
    if (hashed[i]) ahead.add(*pieces[i].file, pieces[i].byte_offset, pieces[i].byte_offset + pieces[i].num_bytes());
    for (; use != plan.uses.end() && use->piece == i; ++use)
      if (!hashed[i]) add_part(pieces[i], *use, ahead);
  }
}

}  // namespace

struct CheckpointReader::Wanted {
  const TargetView* target;
  CommonRuns runs;
};

struct CheckpointReader::Opened {
  explicit Opened(const Manifest& manifest) : indices(manifest.pieces) {}
  OpenedFiles files;
  PieceIndices indices;
};

CheckpointReader::CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

CheckpointReader CheckpointReader::open(const fs::path& folder, Worked worked) {
  ATHANOR_CHECK_CHECKPOINT(fs::is_directory(folder), "{}: there is no such checkpoint folder", folder.string());
  const auto manifest_path = folder / kManifestName;
  ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(manifest_path), "{}: not a checkpoint: it has no {}", folder.string(),
                           kManifestName);
  CheckpointReader reader;
  reader.folder_ = folder;
  reader.worked_ = std::move(worked);
  const MappedFile text(manifest_path);
  size_t released = 0;
  reader.manifest_ = parse_manifest(text.text(), manifest_path.string(), [&](size_t read) {
    if (read < released) released = 0;  // the second pass
    text.release(text.data() + released, read - released);
    reader.note(read - released);
    released = read;
  });
  reader.opened_ = std::make_unique<Opened>(reader.manifest_);
  return reader;
}

void CheckpointReader::verify_files(FileShare files) const {
  if (files.shares == 0) return;
  int64_t number = 0;
  for (const auto& row : manifest_.files) {
    if (number++ % files.shares != files.share) continue;
    const auto file = opened_->files.file(folder_, row);
    SafetensorsFile::parse({file->data(), file->size()}, (folder_ / row.first).string());
    note(1);
  }
}

ReadAhead CheckpointReader::read_ahead() const {
  return ReadAhead([this](const FileTable::value_type& file, uint64_t begin, uint64_t end) {
    try {
      opened_->files.file(folder_, file)->will_read(begin, end);
    } catch (const Error&) {
      // Who reads the file will find the same, and knows what it costs.
    }
  });
}

void CheckpointReader::verify_piece(const Piece& piece, ReadAhead& ahead, ProgressBar* progress) const {
  std::optional<NotFinite> none;
  read_piece(piece, {}, 0, piece.num_elements(), /*hash=*/true, ahead, none, progress);
}

void CheckpointReader::verify(int share, int shares) const {
  verify_files({share, shares});
  uint64_t all = 0;
  for (const Piece& piece : manifest_.pieces) all += piece.num_bytes();
  std::optional<ProgressBar> progress;
  if (share == 0)
    progress.emplace("verifying " + folder_.filename().string(), all / static_cast<uint64_t>(shares), "B", kLongWork_s);
  ByteShares owners(all, shares);
  std::vector<const Piece*> own;
  ReadAhead ahead = read_ahead();
  for (const Piece& piece : manifest_.pieces) {
    if (owners.owner_of_next(piece.num_bytes()) != share) continue;
    own.push_back(&piece);
    ahead.add(*piece.file, piece.byte_offset, piece.byte_offset + piece.num_bytes());
  }
  ahead.note_read(0);
  for (const Piece* piece : own) verify_piece(*piece, ahead, progress ? &*progress : nullptr);
}

void CheckpointReader::check_fits(const std::vector<TargetView>& targets) const {
  std::vector<std::string> problems;
  for (const auto& target : targets) {
    const auto stored = manifest_.tensors.find(target.tensor);
    if (stored == manifest_.tensors.end()) {
      problems.push_back("tensor " + target.tensor + " is missing");
    } else if (stored->second != target.slice.global_shape) {
      problems.push_back("tensor " + target.tensor + " has shape " + shape_text(stored->second) + " there, " +
                         shape_text(target.slice.global_shape) + " here");
    } else {
      check_slice(target.slice, "cannot load tensor " + target.tensor);
    }
  }
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: does not fit this model: {}", folder_.string(),
                           join_first(problems, 4, "; "));
}

LoadPlan CheckpointReader::plan(const std::vector<TargetView>& targets) const {
  check_fits(targets);
  LoadPlan plan;
  for (size_t target = 0; target < targets.size(); ++target) plan_one(targets, target, plan);
  std::ranges::sort(plan.uses, {}, [](const LoadPlan::Use& use) { return std::pair(use.piece, use.target); });
  return plan;
}

void CheckpointReader::plan_one(const std::vector<TargetView>& targets, size_t target, LoadPlan& plan) const {
  const std::string& tensor = targets[target].tensor;
  const Slice& wanted = targets[target].slice;
  const auto use = [&](const Piece& piece, const CommonRun& run) {
    const auto number = static_cast<size_t>(&piece - manifest_.pieces.data());
    const bool is_next = plan.uses.empty() || plan.uses.back().piece != number || plan.uses.back().target != target;
    if (is_next) plan.uses.push_back({number, target, run.in_a, 0, 0});
    auto& found = plan.uses.back();
    found.end = run.in_a + run.count;
    found.count += run.count;
  };
  const auto* index = opened_->indices.of(&*manifest_.tensors.find(tensor));
  const auto filled = cover_with_pieces(wanted, index, folder_.string(), use);
  if (filled.num_missing() == 0) return;
  fail<CheckpointError>("{}: tensor {}: {} of the {} elements wanted ({}) are in no piece, the first at {}",
                        folder_.string(), tensor, filled.num_missing(), wanted.num_elements(), slice_text(wanted),
                        shape_text(global_index(wanted, filled.first_missing())));
}

void CheckpointReader::load(const std::vector<TargetView>& targets, ProgressBar* progress) const {
  std::optional<NotFinite> not_finite;
  const LoadPlan plan = this->plan(targets);
  ReadAhead ahead = read_ahead();
  for (const auto& use : plan.uses) add_part(manifest_.pieces[use.piece], use, ahead);
  ahead.note_read(0);
  for (const auto& use : plan.uses)
    read_part(manifest_.pieces[use.piece], use, targets[use.target], ahead, not_finite, progress);
}

std::optional<NotFinite> CheckpointReader::load_verified(const std::vector<TargetView>& targets, const LoadPlan& plan,
                                                         const std::vector<bool>& hashed, FileShare files,
                                                         ProgressBar* progress, FileDamage* damage) const {
  ATHANOR_ASSERT(hashed.size() == manifest_.pieces.size());
  verify_files(files);
  return read_uses(targets, plan, hashed, progress, damage);
}

void CheckpointReader::close_files() const { opened_->files.close(); }

std::optional<NotFinite> CheckpointReader::read_uses(const std::vector<TargetView>& targets, const LoadPlan& plan,
                                                     const std::vector<bool>& hashed, ProgressBar* progress,
                                                     FileDamage* damage) const {
  ReadAhead ahead = read_ahead();
  add_all(manifest_.pieces, plan, hashed, ahead);
  ahead.note_read(0);
  std::optional<NotFinite> not_finite;
  const auto guarded = [&](const Piece& piece, const std::function<void()>& read) {
    if (!damage) return read();
    if (damage->contains(piece.file_name())) return;
    try {
      read();
    } catch (const Error& error) {
      damage->emplace(piece.file_name(), error.what());
    }
  };
  auto use = plan.uses.begin();
  for (size_t i = 0; i < hashed.size(); ++i) {
    const Piece& piece = manifest_.pieces[i];
    const auto uses_begin = use;
    while (use != plan.uses.end() && use->piece == i) ++use;
    if (!hashed[i]) {
      for (auto each = uses_begin; each != use; ++each)
        guarded(piece, [&] { read_part(piece, *each, targets[each->target], ahead, not_finite, progress); });
      continue;
    }
    const Slice slice = piece.slice();
    std::vector<Wanted> wanted;
    for (auto each = uses_begin; each != use; ++each)
      wanted.push_back({&targets[each->target], {slice, targets[each->target].slice}});
    guarded(piece,
            [&] { read_piece(piece, wanted, 0, piece.num_elements(), /*hash=*/true, ahead, not_finite, progress); });
  }
  return not_finite;
}

void CheckpointReader::read_part(const Piece& piece, const LoadPlan::Use& use, const TargetView& target,
                                 ReadAhead& ahead, std::optional<NotFinite>& not_finite, ProgressBar* progress) const {
  const Slice slice = piece.slice();
  read_piece(piece, {{&target, {slice, target.slice}}}, use.first, use.end, /*hash=*/false, ahead, not_finite,
             progress);
}

void CheckpointReader::read_piece(const Piece& piece, const std::vector<Wanted>& wanted, int64_t first, int64_t end,
                                  bool hash, ReadAhead& ahead, std::optional<NotFinite>& not_finite,
                                  ProgressBar* progress) const {
  const auto file = opened_->files.file(folder_, *piece.file);
  const auto bytes_at = [&](int64_t element) {
    return file->data() + piece.byte_offset + static_cast<size_t>(element) * sizeof(float);
  };
  std::vector<CommonRuns::Cursor> cursors;
  for (const Wanted& each : wanted) cursors.emplace_back(each.runs);
  Hasher hasher;
  int64_t released = first;
  for (int64_t at = first; at < end;) {
    const int64_t block_end = std::min(at + kBlockElements, end);
    if (hash) hasher.update(bytes_at(at), static_cast<size_t>(block_end - at) * sizeof(float));
    for (size_t i = 0; i < wanted.size(); ++i) {
      while (const auto run = cursors[i].next_before(block_end))
        copy_run(*wanted[i].target, *run, bytes_at(run->in_a), not_finite);
    }
    ahead.note_read(static_cast<uint64_t>(block_end - at) * sizeof(float));
    at = block_end;
    if (at < end && at - released < kReleasedElements) continue;
    const auto num_bytes = static_cast<size_t>(at - released) * sizeof(float);
    file->release(bytes_at(released), num_bytes);
    note(num_bytes);
    if (progress) progress->add(num_bytes);
    released = at;
  }
  if (!hash) return;
  const auto found = hasher.hex(), expected = piece.hash.text();
  ATHANOR_CHECK_CHECKPOINT(found == expected,
                           "{}: damaged: tensor {} ({}; bytes {} to {}) should have hash {} and has {}",
                           (folder_ / piece.file_name()).string(), piece.tensor_name(), slice_text(piece.slice()),
                           piece.byte_offset, piece.byte_offset + piece.num_bytes(), expected, found);
}

}  // namespace athanor::inline checkpoint
