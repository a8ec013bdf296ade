#pragma once
// The contents of a checkpoint folder: manifest.json and safetensors files.
//
// Logical fp32 tensors are named KIND/NAME with the parameter's logical name: "master/model.norm.weight",
// "exp_avg/model.norm.weight", "exp_avg_sq/model.norm.weight". Each is stored as pieces. A piece is a slice of the
// tensor; its elements are stored as fp32 from `byte_offset` on in `file`, and `hash` (base/hash.h) is the hash of
// these bytes. The pieces of a tensor hold every element once. In its file a piece is a 1-D F32 tensor named
// KIND/NAME#N, where N is the number of the piece in the file, from 0.
//
// The manifest's first line gives the hash of every byte after that line, so that a damaged manifest is noticed;
// "pieces" comes after all other members:
//   {"hash": "0123...",
//   "format": "athanor-checkpoint", "version": 1, ...}
//
// A run on 12,288 ranks has a million pieces, so they are read one by one into a table, and refer to the names of
// tensors and files. Time and memory are linear in their number: 120 bytes a piece.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/slice.h"

namespace athanor::inline checkpoint {

// The form of manifest.json's first line, for the writer and the parser.

inline constexpr const char* kManifestFormat = "athanor-checkpoint";
inline constexpr std::string_view kManifestHashStart = "{\"hash\": \"";
inline constexpr std::string_view kManifestHashEnd = "\",\n";
inline constexpr size_t kManifestHashDigits = 32;

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr size_t kMaxPieceDims = 4;  // a model's tensors have three at most: expert, row, column

using TensorTable = std::map<std::string, Shape>;  // KIND/NAME → global shape
/// Name in the checkpoint's folder → size in bytes. Of many writers, the files are in folders there (writer.h): the
/// name is "ranks-003/pieces-00801-00000.safetensors".
using FileTable = std::map<std::string, uint64_t>;

/// A hash of 128 bits; as text, 32 hexadecimal digits.
struct PieceHash {
  uint64_t high = 0, low = 0;

  /// Parses a hash; returns none unless the text is 32 lower-case hexadecimal digits.
  static std::optional<PieceHash> parse(std::string_view hex);
  std::string text() const;
  bool operator==(const PieceHash&) const = default;
};

/// A piece of a manifest; it points to the manifest's tables.
struct Piece {
  const TensorTable::value_type* tensor = nullptr;
  const FileTable::value_type* file = nullptr;            // in the checkpoint's folder
  std::array<int64_t, kMaxPieceDims> offset{}, extent{};  // as in Slice, for the tensor's dims
  int64_t flat_begin = 0, flat_end = 0;                   // as in Slice
  uint64_t byte_offset = 0;                               // from the beginning of the file
  PieceHash hash;

  const std::string& tensor_name() const { return tensor->first; }
  const std::string& file_name() const { return file->first; }
  SliceRef slice_ref() const {
    const size_t dims = tensor->second.size();
    return {tensor->second, std::span(offset).first(dims), std::span(extent).first(dims), flat_begin, flat_end};
  }
  Slice slice() const;
  int64_t num_elements() const { return flat_end - flat_begin; }
  uint64_t num_bytes() const { return static_cast<uint64_t>(num_elements()) * sizeof(float); }
};
static_assert(sizeof(Piece) == 120, "a million of them are to fit into 120 MB");

/// The manifest. It can be moved but not copied, because pieces point to the tables.
struct Manifest {
  Manifest() = default;
  Manifest(Manifest&&) = default;
  Manifest& operator=(Manifest&&) = default;
  Manifest(const Manifest&) = delete;
  Manifest& operator=(const Manifest&) = delete;

  /// identifies the model (model_identity.h), so that another model is recognised
  nlohmann::json model = nlohmann::json::object();
  /// values that the trainer needs in addition to tensors: step, cursors, seeds, ...
  nlohmann::json state = nlohmann::json::object();
  TensorTable tensors;
  FileTable files;
  std::vector<Piece> pieces;

  /// Adds a tensor, or returns the one of this name. @throws CheckpointError if it exists with another shape.
  const TensorTable::value_type* add_tensor(const std::string& name, const Shape& shape);
  /// Adds a piece. @throws CheckpointError if it has more dims than kMaxPieceDims.
  void add_piece(const TensorTable::value_type* tensor, const FileTable::value_type* file, const SliceRef& slice,
                 uint64_t byte_offset, PieceHash hash);
};

/// A checkpoint has a format that a later version of this program writes. It may be in order, so it is not passed over.
class NewerFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// Called from time to time with the number of bytes that the present pass over a text has read: all of them, not only
/// those since the last call. Their pages may be dropped from memory, but the text must stay readable: a later pass
/// reads it again.
using ReadBehind = std::function<void(size_t num_bytes)>;

/// Returns the text of manifest.json. Its member "athanor" has the version and the commit of this program
/// (base/build_info.h); reading ignores it. Numbers in `model` and `state` must be finite: JSON has no others.
/// @throws CheckpointError naming a number that is not finite.
std::string manifest_text(const Manifest& manifest);

/// Parses a manifest and checks what the text alone can show. Its hash must be right, each piece must lie in its tensor
/// and in its file, and no two pieces may share bytes of a file. The pieces of a tensor must hold as many elements as
/// the tensor has. The function does not look for elements that two pieces hold.
/// @param behind  called during the pass that computes the hash, then from the beginning during the pass that reads.
/// @throws CheckpointError; `where` names the file in it; NewerFormatError.
Manifest parse_manifest(std::string_view text, const std::string& where, const ReadBehind& behind = {});

/// Makes the checks of parse_manifest without keeping the pieces.
void check_manifest(std::string_view text, const std::string& where, const ReadBehind& behind = {});

/// Parses the manifest of one of several writers as parse_manifest does, but its pieces need not hold all elements of
/// their tensors.
Manifest parse_manifest_part(std::string_view text, const std::string& where);

/// Adds the tensors, files and pieces of `part` to `whole`, which keeps its model and state. @throws CheckpointError
/// for a tensor with two shapes or a file written twice.
void join_manifests(Manifest& whole, Manifest part);

/// The beginning of manifest.json: everything before its tables. In a large checkpoint this is a small part of the
/// file, and the pieces are 250 MB.
struct ManifestSummary {
  std::string version, commit;  ///< those of the program that wrote it; empty if the manifest names none
  nlohmann::json model, state;  ///< as in Manifest
};

/// Reads the manifest's members before "tensors". Compares no hash, since that would take the whole file; reads as few
/// blocks as they need, and keeps no file open or mapped, so that a run may delete it in the meantime.
/// @throws CheckpointError if this is not the beginning of a manifest that this program reads; IoError.
ManifestSummary read_manifest_summary(const std::filesystem::path& file);

}  // namespace athanor::inline checkpoint
