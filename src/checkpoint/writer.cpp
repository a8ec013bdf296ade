#include "checkpoint/writer.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/parallel_for.h"
#include "checkpoint/not_finite.h"
#include "checkpoint/safetensors.h"

namespace athanor::inline checkpoint {
namespace {

constexpr int64_t kBlockElements = 1 << 20;  // hashed, then written while they are still in the cache

/// A part of a view that is written into one file: elements [begin, end) of the view's box.
struct Part {
  const PieceView* view;
  int64_t begin, end;

  Slice slice() const {
    auto slice = view->slice;
    slice.flat_begin = begin;
    slice.flat_end = end;
    return slice;
  }
  /// Returns elements [first, first + buffer.size()) of the part; they are in `buffer` if they must be read.
  const float* elements(int64_t first, std::span<float> buffer) const {
    const int64_t in_view = begin - view->slice.flat_begin + first;
    if (view->data) return view->data + in_view;
    view->read(in_view, buffer);
    return buffer.data();
  }
};

struct PlannedFile {
  /// The result of writing a part.
  struct Written {
    uint64_t byte_offset;
    std::string hash;
  };
  std::string name;
  std::vector<Part> parts;
  std::vector<Written> written;
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
      if (room == 0 || (left > room && left <= capacity)) {  // only a slice that fits into no file is cut
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

std::string write_part(SafetensorsWriter& writer, const Part& part, const std::string& file,
                       const WriteOptions& options) {
  if (const int injected = fault_errno("checkpoint.piece")) {
    errno = injected;
    fail_errno("cannot write", file);
  }
  Hasher hasher;
  const Slice slice = part.slice();
  const int64_t total = part.end - part.begin;
  std::vector<float> buffer(part.view->data ? 0 : static_cast<size_t>(std::min(kBlockElements, total)));
  for (int64_t at = 0; at < total; at += kBlockElements) {
    const auto count = static_cast<size_t>(std::min(kBlockElements, total - at));
    const float* block = part.elements(at, std::span(buffer).first(std::min(count, buffer.size())));
    if (options.must_be_finite)
      check_finite(part.view->tensor, slice, at, std::as_bytes(std::span(block, count)).data(),
                   static_cast<int64_t>(count));
    hasher.update(block, count * sizeof(float));
    writer.append(block, count * sizeof(float));
    if (options.worked) options.worked(static_cast<int64_t>(count * sizeof(float)));
  }
  return hasher.hex();
}

void write_one_file(const std::filesystem::path& folder, PlannedFile& file, const WriteOptions& options) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < file.parts.size(); ++i) {
    const auto& part = file.parts[i];
    specs.push_back({part.view->tensor + "#" + std::to_string(i), Dtype::kF32, {part.end - part.begin}});
  }
  const std::filesystem::path path = folder / file.name;
  SafetensorsWriter writer(path, specs, {{"format", "athanor-checkpoint"}});
  for (const auto& part : file.parts) {
    const uint64_t at = writer.position();
    file.written.push_back({at, write_part(writer, part, path.string(), options)});
  }
  file.size = writer.position();
  fault_point("checkpoint.sync");
  writer.commit();
  fault_point("checkpoint.sync");
}

}  // namespace

void write_pieces(const std::filesystem::path& folder, const std::string& prefix, const std::vector<PieceView>& views,
                  Manifest& manifest, const WriteOptions& options) {
  for (const auto& view : views) {
    check_slice(view.slice, "cannot write tensor " + view.tensor);
    manifest.add_tensor(view.tensor, view.slice.global_shape);
  }
  auto files = plan_files(views, prefix, options.max_file_bytes);
  parallel_for(options.num_threads, static_cast<int64_t>(files.size()),
               [&](int64_t i) { write_one_file(folder, files[static_cast<size_t>(i)], options); });
  for (const auto& file : files) {
    const auto* row = &*manifest.files.insert_or_assign(file.name, file.size).first;
    for (size_t i = 0; i < file.parts.size(); ++i) {
      const auto* tensor = &*manifest.tensors.find(file.parts[i].view->tensor);
      const auto hash = PieceHash::parse(file.written[i].hash);
      manifest.add_piece(tensor, row, file.parts[i].slice(), file.written[i].byte_offset, hash.value());
    }
  }
}

namespace {

// On the first member: adds the entries of the other members to its own manifest.
void join_texts(Manifest& manifest, std::vector<std::string> texts, const Worked& worked) {
  for (size_t i = 1; i < texts.size(); ++i) {
    const auto text = std::move(texts[i]);  // freed after it is read
    join_manifests(manifest, parse_manifest_part(text, fmt::format("what writer {} wrote", i)));
    if (worked) worked(static_cast<int64_t>(text.size()));
  }
}

// A manifest that could not be read back is not kept.
std::string readable_text(const Manifest& manifest, const std::filesystem::path& path, const Worked& worked) {
  auto text = manifest_text(manifest);
  if (worked) worked(static_cast<int64_t>(text.size()));
  check_manifest(text, "cannot write " + path.string(), [&](size_t) {
    if (worked) worked(1);
  });
  return text;
}

std::string folder_of_member(int index, const WriteOptions& options) {
  return fmt::format("ranks-{:03}", index / options.members_per_folder);
}

// Returns the beginning of the names of a member's files, with the folder that they are in.
std::string prefix_of(const Team& team, const WriteOptions& options) {
  if (team.size == 1) return "pieces";
  const auto name = fmt::format("pieces-{:05}", team.index);
  return team.size > options.members_per_folder ? folder_of_member(team.index, options) + "/" + name : name;
}

void make_member_folders(const std::filesystem::path& staging, const Team& team, const WriteOptions& options) {
  if (team.size <= options.members_per_folder) return;
  for (int first = 0; first < team.size; first += options.members_per_folder)
    std::filesystem::create_directory(staging / folder_of_member(first, options));
}

}  // namespace

void write_checkpoint(const std::filesystem::path& folder, const std::vector<PieceView>& pieces,
                      const nlohmann::json& model, const nlohmann::json& state, const WriteOptions& options,
                      const std::function<void()>& before_commit, const Team& team) {
  std::optional<AtomicFolder> staged;
  const std::string staging = team.from_first([&] {
    staged.emplace(folder);
    make_member_folders(staged->staging(), team, options);
    return staged->staging().string();
  });
  Manifest manifest;
  if (!model.is_null()) manifest.model = model;
  if (!state.is_null()) manifest.state = state;
  const std::string prefix = prefix_of(team, options);
  std::string own;
  team.on_all([&] {
    auto watched = options;
    if (!watched.worked) watched.worked = team.worked;
    const auto write = [&] { write_pieces(staging, prefix, pieces, manifest, watched); };
    watched.in_turn ? watched.in_turn(write) : write();
    if (!team.is_first()) own = manifest_text(manifest);
  });
  auto texts = team.size > 1 ? team.gather(own) : std::vector<std::string>{};
  team.on_first([&] {
    fault_point("checkpoint.commit");
    join_texts(manifest, std::move(texts), team.worked);
    write_file_atomically(staged->staging() / kManifestName,
                          readable_text(manifest, folder / kManifestName, team.worked));
    fault_point("checkpoint.commit");
    if (before_commit) before_commit();
    fault_point("checkpoint.before_commit");
    fault_point("checkpoint.commit");
    staged->commit();
    fault_point("checkpoint.commit");
  });
}

uint64_t total_bytes(const std::vector<PieceView>& pieces) {
  uint64_t total = 0;
  for (const auto& piece : pieces) total += static_cast<uint64_t>(piece.slice.num_elements()) * sizeof(float);
  return total;
}

}  // namespace athanor::inline checkpoint
