#pragma once
// For tests and measurements: the manifest of a large run.

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/manifest.h"

namespace athanor::inline checkpoint {

/// Returns a manifest of `num_pieces` pieces: tensors of a large model, each cut into one piece for each of its ranks.
inline Manifest large_manifest(int64_t num_pieces) {
  constexpr int64_t kPieceElements = 4096, kPiecesOfTensor = 512, kPiecesOfFile = 64;
  Manifest manifest;
  const TensorTable::value_type* tensor = nullptr;
  const FileTable::value_type* file = nullptr;
  for (int64_t i = 0; i < num_pieces; ++i) {
    const int64_t in_tensor = i % kPiecesOfTensor, in_file = i % kPiecesOfFile;
    const int64_t of_tensor = std::min(kPiecesOfTensor, num_pieces - (i - in_tensor));
    const Shape shape{16, of_tensor, kPieceElements / 16};
    if (in_tensor == 0)
      tensor = manifest.add_tensor(
          fmt::format("exp_avg_sq/model.layers.{}.mlp.experts.gate_up_proj", i / kPiecesOfTensor), shape);
    if (in_file == 0)
      file = &*manifest.files
                   .emplace(fmt::format("pieces-{:05}-00000.safetensors", i / kPiecesOfFile),
                            (kPieceElements * kPiecesOfFile + 1000) * 4)
                   .first;
    Slice slice = whole_slice(shape);
    slice.flat_begin = in_tensor * kPieceElements;
    slice.flat_end = slice.flat_begin + kPieceElements;
    const auto number = static_cast<uint64_t>(i);
    manifest.add_piece(tensor, file, slice, 4000 + static_cast<uint64_t>(in_file * kPieceElements * 4),
                       {number * 0x9E3779B97F4A7C15, ~number});
  }
  return manifest;
}

}  // namespace athanor::inline checkpoint
