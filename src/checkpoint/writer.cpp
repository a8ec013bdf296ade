#include "checkpoint/writer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/hash.h"
#include "checkpoint/safetensors.h"

namespace athanor {
namespace {

constexpr int64_t kBlockElements = 1 << 20;  // hashed, then written while they are still in the cache

/// A part of a view that goes into one file: elements [begin, end) of the view's box.
struct Part {
  const PieceView* view;
  int64_t begin, end;

  Slice slice() const {
    auto slice = view->slice;
    slice.flat_begin = begin;
    slice.flat_end = end;
    return slice;
  }
  /// Elements [first, first + buffer.size()) of the part; in `buffer`, if they must be read.
  const float* elements(int64_t first, std::span<float> buffer) const {
    const int64_t in_view = begin - view->slice.flat_begin + first;
    if (view->data) return view->data + in_view;
    view->read(in_view, buffer);
    return buffer.data();
  }
};

struct PlannedFile {
  std::string name;
  std::vector<Part> parts;
  std::vector<Piece> pieces;  // what was written
  uint64_t size = 0;
};

std::vector<PlannedFile> plan_files(const std::vector<PieceView>& views, const std::string& prefix,
                                    uint64_t max_file_bytes) {
  const auto capacity = std::max<int64_t>(1, static_cast<int64_t>(max_file_bytes / sizeof(float)));
  std::vector<PlannedFile> files;
  int64_t room = 0;
  for (const auto& view : views) {
    int64_t begin = view.slice.flat_begin;
    while (begin < view.slice.flat_end) {
      const int64_t left = view.slice.flat_end - begin;
      if (room == 0 || (left > room && left <= capacity)) {  // only what fits into no file is cut
        files.push_back({fmt::format("{}-{:05}.safetensors", prefix, files.size()), {}, {}, 0});
        room = capacity;
      }
      const int64_t count = std::min(left, room);
      files.back().parts.push_back({&view, begin, begin + count});
      begin += count;
      room -= count;
    }
  }
  return files;
}

std::string write_part(SafetensorsWriter& writer, const Part& part, const std::string& file) {
  if (const int injected = fault_errno("checkpoint.piece")) {
    errno = injected;
    fail_errno("cannot write", file);
  }
  Hasher hasher;
  const int64_t total = part.end - part.begin;
  std::vector<float> buffer(part.view->data ? 0 : static_cast<size_t>(std::min(kBlockElements, total)));
  for (int64_t at = 0; at < total; at += kBlockElements) {
    const auto count = static_cast<size_t>(std::min(kBlockElements, total - at));
    const float* block = part.elements(at, std::span(buffer).first(std::min(count, buffer.size())));
    hasher.update(block, count * sizeof(float));
    writer.append(block, count * sizeof(float));
  }
  return hasher.hex();
}

void write_one_file(const std::filesystem::path& folder, PlannedFile& file) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < file.parts.size(); ++i) {
    const auto& part = file.parts[i];
    specs.push_back({part.view->tensor + "#" + std::to_string(i), Dtype::kF32, {part.end - part.begin}});
  }
  SafetensorsWriter writer(folder / file.name, specs, {{"format", "athanor-checkpoint"}});
  for (const auto& part : file.parts) {
    const uint64_t at = writer.position();
    file.pieces.push_back({part.view->tensor, part.slice(), file.name, at, write_part(writer, part, file.name)});
  }
  file.size = writer.position();
  writer.commit();
}

/// Each thread takes the next file until there is none or one has failed; the first failure is thrown here.
void write_files(const std::filesystem::path& folder, std::vector<PlannedFile>& files, int num_threads) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr first_failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < files.size() && !failed; i = next++) {
      try {
        write_one_file(folder, files[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) first_failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  const auto wanted = std::min<size_t>(files.size(), static_cast<size_t>(std::max(1, num_threads)));
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace

void write_pieces(const std::filesystem::path& folder, const std::string& prefix, const std::vector<PieceView>& views,
                  Manifest& manifest, const WriteOptions& options) {
  for (const auto& view : views) {
    check_slice(view.slice, "cannot write tensor " + view.tensor);
    const auto [known, added] = manifest.tensors.emplace(view.tensor, view.slice.global_shape);
    ATHANOR_CHECK_CHECKPOINT(known->second == view.slice.global_shape,
                             "cannot write tensor {} with shape {} and again with shape {}", view.tensor,
                             shape_text(known->second), shape_text(view.slice.global_shape));
  }
  auto files = plan_files(views, prefix, options.max_file_bytes);
  write_files(folder, files, options.num_threads);
  for (auto& file : files) {
    manifest.files[file.name] = file.size;
    std::move(file.pieces.begin(), file.pieces.end(), std::back_inserter(manifest.pieces));
  }
}

namespace {

// The manifests that all members wrote, on the first one.
void join_team(const Team& team, Manifest& manifest) {
  if (team.size == 1) return;
  const auto texts = team.tell_first(manifest_text(manifest));
  for (size_t i = 1; i < texts.size(); ++i)
    join_manifests(manifest, parse_manifest_part(texts[i], fmt::format("what writer {} wrote", i)));
}

}  // namespace

void write_checkpoint(const std::filesystem::path& folder, const std::vector<PieceView>& pieces,
                      const nlohmann::json& model, const nlohmann::json& state, const WriteOptions& options,
                      const std::function<void()>& before_commit, const Team& team) {
  std::optional<AtomicFolder> staged;
  std::string staging;
  team.on_first([&] {
    staged.emplace(folder);
    staging = staged->staging().string();
  });
  if (team.size > 1) staging = team.hear_first(staging);
  Manifest manifest;
  if (!model.is_null()) manifest.model = model;
  if (!state.is_null()) manifest.state = state;
  const std::string prefix = team.size == 1 ? "pieces" : fmt::format("pieces-{:05}", team.index);
  team.on_all([&] { write_pieces(staging, prefix, pieces, manifest, options); });
  join_team(team, manifest);
  team.on_first([&] {
    const auto text = manifest_text(manifest);
    parse_manifest(text, "cannot write " + (folder / kManifestName).string());  // what nobody could read is not kept
    write_file_atomically(staged->staging() / kManifestName, text);
    if (before_commit) before_commit();
    fault_point("checkpoint.before_commit");
    staged->commit();
  });
}

uint64_t total_bytes(const std::vector<PieceView>& pieces) {
  uint64_t total = 0;
  for (const auto& piece : pieces) total += static_cast<uint64_t>(piece.slice.num_elements()) * sizeof(float);
  return total;
}

}  // namespace athanor
