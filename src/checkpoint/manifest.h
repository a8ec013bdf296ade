#pragma once
// What a checkpoint folder holds: manifest.json beside safetensors files.
//
// Logical fp32 tensors are named KIND/NAME with the parameter's logical name: "master/model.norm.weight",
// "exp_avg/model.norm.weight", "exp_avg_sq/model.norm.weight". Each is stored as pieces: a piece is a slice of it, its
// elements lie as fp32 from `byte_offset` on in `file`, and `hash` (base/hash.h) is that of these bytes. The pieces of
// a tensor hold every element once. In its file a piece is a 1-D F32 tensor named KIND/NAME#N.
//
// The file's first line gives the hash of every byte after that line, so that a damaged manifest is noticed:
//   {"hash": "0123...",
//   "format": "athanor-checkpoint", "version": 1, ...}

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/slice.h"

namespace athanor {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

struct Piece {
  std::string tensor;
  Slice slice;
  std::string file;  // in the checkpoint's folder
  uint64_t byte_offset = 0;
  std::string hash;

  uint64_t num_bytes() const { return static_cast<uint64_t>(slice.num_elements()) * sizeof(float); }
};

struct Manifest {
  nlohmann::json model = nlohmann::json::object();  ///< which model (model_identity.h); another one is told by it
  nlohmann::json state =
      nlohmann::json::object();  ///< what the trainer needs beside tensors: step, cursors, seeds, ...
  std::map<std::string, Shape> tensors;
  std::map<std::string, uint64_t> files;  ///< sizes in bytes
  std::vector<Piece> pieces;
};

/// The text of manifest.json. Numbers in `model` and `state` must be finite, since JSON has no others.
/// @throws CheckpointError naming a number that is not.
std::string manifest_text(const Manifest& manifest);

/// Checks everything the text alone can tell: its hash, that each piece lies in its tensor and in its file, that the
/// pieces of a tensor hold as many elements as it has.
/// @throws CheckpointError; `where` names the file in it.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// What one of several writers wrote: pieces that need not hold all of their tensors.
Manifest parse_manifest_part(std::string_view text, const std::string& where);

/// Adds the tensors, files and pieces of `part`. @throws CheckpointError for a tensor with two shapes or a file written
/// twice.
void join_manifests(Manifest& whole, Manifest part);

}  // namespace athanor
