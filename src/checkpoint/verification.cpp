#include "checkpoint/verification.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/parallel_for.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/listing.h"
#include "checkpoint/opened_files.h"
#include "checkpoint/piece_index.h"
#include "checkpoint/reader.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kWindowElements = int64_t{1} << 26;  // 8 MiB of bits for each thread

/// Checks the elements [begin, end) of a tensor, counted row-major.
void check_window(const TensorTable::value_type& tensor, const PieceIndex* index, int64_t begin, int64_t end,
                  const std::string& where) {
  Slice window = whole_slice(tensor.second);
  window.flat_begin = begin;
  window.flat_end = end;
  const auto filled = cover_with_pieces(window, index, where, [](const Piece&, const CommonRun&) {});
  ATHANOR_CHECK_CHECKPOINT(filled.num_missing() == 0, "{}: tensor {}: the element at {} is in no piece", where,
                           tensor.first, shape_text(global_index(window, filled.first_missing())));
}

}  // namespace

void check_pieces(const Manifest& manifest, const std::string& where, int num_threads) {
  PieceIndices indices(manifest.pieces);
  std::vector<const TensorTable::value_type*> tensors;
  for (const auto& row : manifest.tensors) tensors.push_back(&row);
  parallel_for(num_threads, static_cast<int64_t>(tensors.size()), [&](int64_t i) {
    const auto& tensor = *tensors[static_cast<size_t>(i)];
    const int64_t all = *num_elements(tensor.second);
    const PieceIndex* index = indices.of(&tensor);
    for (int64_t begin = 0; begin < all; begin += std::min(kWindowElements, all - begin))
      check_window(tensor, index, begin, begin + std::min(kWindowElements, all - begin), where);
  });
}

VerifiedCheckpoint verify_checkpoint(const fs::path& folder, int num_threads) {
  return with_io_errors([&] {
    const auto reader = CheckpointReader::open(folder);
    const Manifest& manifest = reader.manifest();
    parallel_for(num_threads, num_threads, [&](int64_t share) { reader.verify(static_cast<int>(share), num_threads); });
    check_pieces(manifest, folder.string(), num_threads);
    VerifiedCheckpoint verified{0, static_cast<int64_t>(manifest.tensors.size()),
                                static_cast<int64_t>(manifest.files.size())};
    for (const Piece& piece : manifest.pieces) verified.num_bytes += piece.num_bytes();
    return verified;
  });
}

VerifiedCheckpoint verify_model(const fs::path& folder) {
  return with_io_errors([&] {
    const auto model = HfFolder::open(folder);
    const auto files = describe_checkpoint({folder, -1, CheckpointKind::kModel, CheckpointState::kThere});
    ATHANOR_CHECK_CHECKPOINT(files && files->problem.empty(), "{}", files ? files->problem : "it has disappeared");
    return VerifiedCheckpoint{files->num_bytes, static_cast<int64_t>(model.parameters().size()), files->num_files};
  });
}

}  // namespace athanor::inline checkpoint
