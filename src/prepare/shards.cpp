#include "prepare/shards.h"

#include <fmt/core.h>

#include <algorithm>

#include "dataset/npy.h"

namespace athanor::inline preparation {

std::vector<ShardPlace> place_shards(const std::string& split, int64_t first_row, int64_t count, int64_t first_number,
                                     const ShardForm& form) {
  const auto row_bytes = static_cast<uint64_t>(form.row_bytes());
  const uint64_t header_bytes = npy_header(form.item_bytes, count, form.seq_len).size();
  const uint64_t for_rows = form.shard_bytes - std::min(form.shard_bytes, header_bytes);
  auto rows_in_shard = static_cast<int64_t>(std::max<uint64_t>(1, for_rows / row_bytes));
  if (rows_in_shard > form.block_rows()) rows_in_shard -= rows_in_shard % form.block_rows();
  std::vector<ShardPlace> places;
  for (int64_t row = 0; row < count; row += rows_in_shard) {
    places.push_back({fmt::format("{}-{:05}.npy", split, first_number + static_cast<int64_t>(places.size())),
                      first_row + row, std::min(rows_in_shard, count - row)});
  }
  return places;
}

ShardWriter::ShardWriter(const std::filesystem::path& folder, const ShardPlace& place, const ShardForm& form)
    : file_(folder / place.file), blocks_(form.block_rows() * form.row_bytes()) {
  const auto header = npy_header(form.item_bytes, place.num_rows, form.seq_len);
  file_.write(header.data(), header.size());
  hasher_.update(header.data(), header.size());
}

void ShardWriter::write(const std::byte* rows, size_t num_bytes) {
  file_.write(rows, num_bytes);
  hasher_.update(rows, num_bytes);
  blocks_.update(rows, num_bytes);
}

FinishedShard ShardWriter::commit() {
  file_.commit();
  return {hasher_.hex(), blocks_.finish()};
}

std::vector<HashWords> hash_blocks(const std::filesystem::path& shard, const ShardForm& form) {
  const auto matrix = NpyMatrix::open(shard);
  BlockHasher blocks(form.block_rows() * form.row_bytes());
  std::vector<std::byte> row(static_cast<size_t>(form.row_bytes()));
  for (int64_t i = 0; i < matrix.num_rows(); ++i) {
    matrix.read_row(i, row.data());
    blocks.update(row.data(), row.size());
  }
  return blocks.finish();
}

}  // namespace athanor::inline preparation
