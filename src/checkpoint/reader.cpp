#include "checkpoint/reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxNamed = 4;  // problems in one message; the rest is counted

std::string summary(const std::vector<std::string>& problems) {
  std::vector<std::string> shown(problems.begin(), problems.begin() + std::min(problems.size(), kMaxNamed));
  if (problems.size() > kMaxNamed) shown.push_back(fmt::format("and {} more", problems.size() - kMaxNamed));
  return join(shown, "; ");
}

/// The first element of `target` that none of `pieces` holds; only for the message, so a flag for each will do.
std::string first_missing(const Slice& target, const std::vector<const Piece*>& pieces) {
  std::vector<bool> held(static_cast<size_t>(target.num_elements()));
  for (const auto* piece : pieces) {
    CommonRuns(piece->slice, target).for_each([&](const CommonRun& run) {
      std::fill_n(held.begin() + run.in_b, run.count, true);
    });
  }
  const auto missing = std::find(held.begin(), held.end(), false) - held.begin();
  return shape_text(global_index(target, missing));
}

/// Elements [first, first + count) of a target from bytes of a file, which may lie at any address.
void copy_run(const TargetView& target, int64_t first, const std::byte* from, int64_t count) {
  if (target.data) {
    std::memcpy(target.data + first, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  constexpr int64_t kBlock = 4096;  // 16 KiB: on the stack, and in the nearest cache until it is written on
  std::array<float, kBlock> block;
  for (int64_t at = 0; at < count; at += kBlock) {
    const auto length = static_cast<size_t>(std::min(kBlock, count - at));
    std::memcpy(block.data(), from + static_cast<size_t>(at) * sizeof(float), length * sizeof(float));
    target.write(first + at, std::span(block).first(length));
  }
}

}  // namespace

CheckpointReader CheckpointReader::open(const fs::path& folder) {
  ATHANOR_CHECK_CHECKPOINT(fs::is_directory(folder), "{}: there is no such checkpoint folder", folder.string());
  const auto manifest_path = folder / kManifestName;
  ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(manifest_path), "{}: not a checkpoint: it has no {}", folder.string(),
                           kManifestName);
  CheckpointReader reader;
  reader.folder_ = folder;
  reader.manifest_ = parse_manifest(read_file(manifest_path), manifest_path.string());
  for (const auto& [name, size] : reader.manifest_.files) {
    const auto path = folder / name;
    ATHANOR_CHECK_CHECKPOINT(fs::is_regular_file(path), "{}: the file {} is missing", folder.string(), name);
    MappedFile file(path);
    ATHANOR_CHECK_CHECKPOINT(file.size() == size, "{}: truncated or changed: {} bytes expected, {} found",
                             path.string(), size, file.size());
    reader.files_.emplace(name, std::move(file));
  }
  for (const auto& piece : reader.manifest_.pieces) reader.pieces_of_tensor_[piece.tensor].push_back(&piece);
  return reader;
}

const std::byte* CheckpointReader::bytes_of(const Piece& piece) const {
  return files_.at(piece.file).data() + piece.byte_offset;
}

std::string CheckpointReader::hash_of(const Piece& piece) const {
  constexpr uint64_t kBlockBytes = 16 << 20;
  Hasher hasher;
  for (uint64_t at = 0; at < piece.num_bytes(); at += kBlockBytes) {
    const auto count = std::min(kBlockBytes, piece.num_bytes() - at);
    hasher.update(bytes_of(piece) + at, count);
    files_.at(piece.file).release(bytes_of(piece) + at, count);
  }
  return hasher.hex();
}

void CheckpointReader::verify(int share, int shares) const {
  int number = 0;
  for (const auto& [name, file] : files_) {
    if (number++ % shares == share) SafetensorsFile::parse({file.data(), file.size()}, (folder_ / name).string());
  }
  number = 0;
  for (const auto& piece : manifest_.pieces) {
    if (number++ % shares != share) continue;
    const auto found = hash_of(piece);
    ATHANOR_CHECK_CHECKPOINT(found == piece.hash,
                             "{}: damaged: tensor {} ({}; bytes {} to {}) should have hash {} and has {}",
                             (folder_ / piece.file).string(), piece.tensor, slice_text(piece.slice), piece.byte_offset,
                             piece.byte_offset + piece.num_bytes(), piece.hash, found);
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
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: does not fit this model: {}", folder_.string(), summary(problems));
}

void CheckpointReader::load(const std::vector<TargetView>& targets) const {
  check_targets(targets);
  static const std::vector<const Piece*> kNone;
  for (const auto& target : targets) {
    const auto pieces = pieces_of_tensor_.find(target.tensor);
    load_one(target, pieces == pieces_of_tensor_.end() ? kNone : pieces->second);
  }
}

void CheckpointReader::load_one(const TargetView& target, const std::vector<const Piece*>& pieces) const {
  int64_t num_copied = 0;
  std::vector<const Piece*> used;
  for (const auto* piece : pieces) {
    const auto* source = bytes_of(*piece);
    int64_t first = -1, last = 0;  // read of the piece
    CommonRuns(piece->slice, target.slice).for_each([&](const CommonRun& run) {
      copy_run(target, run.in_b, source + static_cast<size_t>(run.in_a) * sizeof(float), run.count);
      num_copied += run.count;
      if (first < 0) first = run.in_a;
      last = run.in_a + run.count;
    });
    if (first < 0) continue;
    used.push_back(piece);
    files_.at(piece->file)
        .release(source + static_cast<size_t>(first) * sizeof(float),
                 static_cast<size_t>(last - first) * sizeof(float));
  }
  // As many elements as wanted, from pieces without a common element, are every element once.
  for (size_t i = 0; i < used.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      ATHANOR_CHECK_CHECKPOINT(CommonRuns(used[i]->slice, used[j]->slice).empty(),
                               "{}: tensor {}: two pieces hold the same elements: {} and {}", folder_.string(),
                               target.tensor, slice_text(used[j]->slice), slice_text(used[i]->slice));
    }
  }
  ATHANOR_CHECK_CHECKPOINT(num_copied == target.slice.num_elements(),
                           "{}: tensor {}: {} of the {} elements wanted ({}) are in no piece, the first at {}",
                           folder_.string(), target.tensor, target.slice.num_elements() - num_copied,
                           target.slice.num_elements(), slice_text(target.slice), first_missing(target.slice, used));
}

}  // namespace athanor
