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
#include "checkpoint/filled_elements.h"
#include "checkpoint/opened_files.h"
#include "checkpoint/safetensors.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

/// Copies elements [first, first + count) of a target from bytes of a file, which may be at any address.
void copy_run(const TargetView& target, int64_t first, const std::byte* from, int64_t count) {
  if (target.data) {
    std::memcpy(target.data + first, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  constexpr int64_t kBlock = 4096;  // 16 KiB: it is on the stack, and in the nearest cache until it is written
  std::array<float, kBlock> block;
  for (int64_t at = 0; at < count; at += kBlock) {
    const auto length = static_cast<size_t>(std::min(kBlock, count - at));
    std::memcpy(block.data(), from + static_cast<size_t>(at) * sizeof(float), length * sizeof(float));
    target.write(first + at, std::span(block).first(length));
  }
}

}  // namespace

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

std::string CheckpointReader::hash_of(const Piece& piece, ProgressBar* progress) const {
  constexpr uint64_t kBlockBytes = 16 << 20;
  const auto file = opened_->files.file(folder_, *piece.file);
  const auto* bytes = file->data() + piece.byte_offset;
  Hasher hasher;
  for (uint64_t at = 0; at < piece.num_bytes(); at += kBlockBytes) {
    const auto count = std::min(kBlockBytes, piece.num_bytes() - at);
    hasher.update(bytes + at, count);
    file->release(bytes + at, count);
    note(count);
    if (progress) progress->add(count);
  }
  return hasher.hex();
}

void CheckpointReader::verify_files(int share, int shares) const {
  int64_t number = 0;
  for (const auto& row : manifest_.files) {
    if (number++ % shares != share) continue;
    const auto file = opened_->files.file(folder_, row);
    SafetensorsFile::parse({file->data(), file->size()}, (folder_ / row.first).string());
    note(1);
  }
}

void CheckpointReader::verify(int share, int shares) const {
  verify_files(share, shares);
  uint64_t all = 0, before = 0;
  for (const Piece& piece : manifest_.pieces) all += piece.num_bytes();
  std::optional<ProgressBar> progress;
  if (share == 0)
    progress.emplace("verifying " + folder_.filename().string(), all / static_cast<uint64_t>(shares), "B", kLongWork_s);
  for (const Piece& piece : manifest_.pieces) {
    // The position of a piece among all bytes decides who checks it; a piece without bytes is checked as well.
    const double middle = static_cast<double>(before) + static_cast<double>(piece.num_bytes()) / 2;
    const auto owner = static_cast<int>(middle / static_cast<double>(std::max<uint64_t>(1, all)) * shares);
    before += piece.num_bytes();
    if (std::min(owner, shares - 1) != share) continue;
    const auto found = hash_of(piece, progress ? &*progress : nullptr), expected = piece.hash.text();
    ATHANOR_CHECK_CHECKPOINT(found == expected,
                             "{}: damaged: tensor {} ({}; bytes {} to {}) should have hash {} and has {}",
                             (folder_ / piece.file_name()).string(), piece.tensor_name(), slice_text(piece.slice()),
                             piece.byte_offset, piece.byte_offset + piece.num_bytes(), expected, found);
  }
}

void CheckpointReader::check_targets(const std::vector<TargetView>& targets) const {
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

void CheckpointReader::load(const std::vector<TargetView>& targets, ProgressBar* progress) const {
  check_targets(targets);
  for (const auto& target : targets) load_one(target, progress);
}

void CheckpointReader::load_one(const TargetView& target, ProgressBar* progress) const {
  FilledElements filled(target.slice.num_elements());
  std::vector<const Piece*> used;
  const auto read = [&](const Piece& piece) {
    const Slice slice = piece.slice();
    const CommonRuns runs(slice, target.slice);
    if (runs.empty()) return;
    const auto file = opened_->files.file(folder_, *piece.file);
    const auto* source = file->data() + piece.byte_offset;
    int64_t first = INT64_MAX, last = 0;  // the elements read from the piece
    bool twice = false;
    runs.for_each([&](const CommonRun& run) {
      twice = twice || filled.fill(run.in_b, run.count) < run.count;
      copy_run(target, run.in_b, source + static_cast<size_t>(run.in_a) * sizeof(float), run.count);
      first = std::min(first, run.in_a);
      last = run.in_a + run.count;
    });
    for (size_t i = 0; twice && i < used.size(); ++i) {
      const Slice other = used[i]->slice();
      ATHANOR_CHECK_CHECKPOINT(CommonRuns(other, slice).empty(),
                               "{}: tensor {}: two pieces hold the same elements: {} and {}", folder_.string(),
                               target.tensor, slice_text(other), slice_text(slice));
    }
    used.push_back(&piece);
    const size_t num_bytes = static_cast<size_t>(last - first) * sizeof(float);
    file->release(source + static_cast<size_t>(first) * sizeof(float), num_bytes);
    note(num_bytes);
    if (progress) progress->add(num_bytes);
  };
  if (const auto* index = opened_->indices.of(&*manifest_.tensors.find(target.tensor)))
    index->for_each_near(target.slice, read);
  if (filled.num_missing() == 0) return;
  fail<CheckpointError>("{}: tensor {}: {} of the {} elements wanted ({}) are in no piece, the first at {}",
                        folder_.string(), target.tensor, filled.num_missing(), target.slice.num_elements(),
                        slice_text(target.slice), shape_text(global_index(target.slice, filled.first_missing())));
}

}  // namespace athanor
