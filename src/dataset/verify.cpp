#include "dataset/verify.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "dataset/npy.h"

namespace athanor::inline dataset {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;  // hashed while it is in the cache because its ids are checked

void check_there(const fs::path& file) {
  std::error_code ignored;
  ATHANOR_CHECK_DATA(fs::exists(file, ignored), "{} is missing; {}", file.string(), kDamagedDataRemedy);
}

void check_hash(const fs::path& file, const std::string& actual, const std::string& expected) {
  ATHANOR_CHECK_DATA(actual == expected, "{}: damaged: its checksum is {}, the manifest has {}; {}", file.string(),
                     actual, expected, kDamagedDataRemedy);
}

template <class Item>
uint32_t id_at(const std::byte* items, int64_t i) {
  Item id;
  std::memcpy(&id, items + i * static_cast<int64_t>(sizeof(Item)), sizeof(Item));
  return id;
}

// Returns the first of `count` ids that is beyond the vocabulary, or -1.
template <class Item>
int64_t find_bad_id(const std::byte* items, int64_t count, uint32_t vocab_size) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, id_at<Item>(items, i));
  if (largest < vocab_size) return -1;
  int64_t i = 0;
  while (id_at<Item>(items, i) < vocab_size) ++i;
  return i;
}

NpyMatrix open_shaped(const fs::path& file, int64_t rows, int64_t cols) {
  check_there(file);
  auto matrix = NpyMatrix::open(file);
  ATHANOR_CHECK_DATA(matrix.num_rows() == rows && matrix.num_cols() == cols,
                     "{}: shape [{}, {}], the manifest has [{}, {}]; {}", file.string(), matrix.num_rows(),
                     matrix.num_cols(), rows, cols, kDamagedDataRemedy);
  return matrix;
}

NpyMatrix open_matrix(const fs::path& file, int64_t rows, int64_t cols, const DataManifest& manifest) {
  auto matrix = open_shaped(file, rows, cols);
  ATHANOR_CHECK_DATA(matrix.header().item_bytes == manifest.item_bytes(),
                     "{}: ids of {} bytes, the manifest has {}; {}", file.string(), matrix.header().item_bytes,
                     manifest.dtype, kDamagedDataRemedy);
  return matrix;
}

// Checks shape, checksum and ids of the matrix in `file`, which is read once.
void check_matrix(const fs::path& file, int64_t rows, int64_t cols, const std::string& hash,
                  const DataManifest& manifest, const Worked& worked) {
  const auto matrix = open_matrix(file, rows, cols, manifest);
  const int64_t item_bytes = manifest.item_bytes(), first = static_cast<int64_t>(matrix.header().data_offset);
  std::vector<std::byte> block(static_cast<size_t>(std::max(first, kBlockBytes)));
  Hasher hasher;
  const auto read = [&](int64_t at, int64_t num_bytes) {
    matrix.file().read_at(static_cast<uint64_t>(at), block.data(), static_cast<size_t>(num_bytes));
    hasher.update(block.data(), static_cast<size_t>(num_bytes));
    if (worked) worked(num_bytes);
  };
  read(0, first);
  int64_t bad = -1;
  uint32_t bad_id = 0;
  const int64_t items = rows * cols, at_once = kBlockBytes / item_bytes;
  for (int64_t item = 0; item < items; item += at_once) {
    const int64_t count = std::min(at_once, items - item);
    read(first + item * item_bytes, count * item_bytes);
    if (bad >= 0) continue;
    const int64_t found = item_bytes == 2 ? find_bad_id<uint16_t>(block.data(), count, manifest.vocab_size)
                                          : find_bad_id<uint32_t>(block.data(), count, manifest.vocab_size);
    if (found < 0) continue;
    bad = item + found;
    bad_id = item_bytes == 2 ? id_at<uint16_t>(block.data(), found) : id_at<uint32_t>(block.data(), found);
  }
  check_hash(file, hasher.hex(), hash);
  ATHANOR_CHECK_DATA(bad < 0, "{}: row {}, position {}: token id {} is beyond the vocabulary of {}; {}", file.string(),
                     bad / cols, bad % cols, bad_id, manifest.vocab_size, kDamagedDataRemedy);
}

}  // namespace

NpyMatrix open_shard(const fs::path& file, const ShardEntry& entry, const DataManifest& manifest) {
  return open_matrix(file, entry.instances, manifest.seq_len, manifest);
}

void verify_shard(const fs::path& file, const ShardEntry& entry, const DataManifest& manifest, const Worked& worked) {
  check_matrix(file, entry.instances, manifest.seq_len, entry.hash, manifest, worked);
}

void verify_tokenizer_file(const fs::path& file, const DataManifest& manifest, const Worked& worked) {
  check_there(file);
  check_hash(file, hash_file(file, worked), manifest.tokenizer_hash);
}

NpyMatrix open_checksums(const fs::path& file, int64_t num_blocks) {
  return open_shaped(file, num_blocks, std::tuple_size_v<HashWords>);
}

void verify_checksum_file(const fs::path& folder, const ChecksumEntry& entry, int64_t num_blocks,
                          const Worked& worked) {
  const auto file = folder / entry.file;
  open_checksums(file, num_blocks);
  check_hash(file, hash_file(file, worked), entry.hash);
}

void verify_remainder(const fs::path& folder, const DataManifest& manifest) {
  check_matrix(folder / manifest.remainder->file, 1, manifest.remainder_tokens, manifest.remainder->hash, manifest, {});
}

}  // namespace athanor::inline dataset
