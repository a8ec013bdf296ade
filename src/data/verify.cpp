#include "data/verify.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "data/npy.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

constexpr const char* kRemedy = "get it again from a copy, or prepare the data again";
constexpr int64_t kRowsAtOnce = 256;  // a megabyte or so: hashed while it is in the cache from looking at its ids

void check_there(const fs::path& file) {
  std::error_code ignored;
  ATHANOR_CHECK_DATA(fs::exists(file, ignored), "{} is missing; {}", file.string(), kRemedy);
}

void check_hash(const fs::path& file, const std::string& actual, const std::string& expected) {
  ATHANOR_CHECK_DATA(actual == expected, "{}: damaged: its checksum is {}, the manifest says {}; {}", file.string(),
                     actual, expected, kRemedy);
}

template <class Item>
uint32_t largest_id(const std::byte* items, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Item id;
    std::memcpy(&id, items + i * static_cast<int64_t>(sizeof(Item)), sizeof(Item));
    largest = std::max(largest, uint32_t{id});
  }
  return largest;
}

// Shape, checksum and ids of `matrix`, read once.
void check_matrix(const fs::path& file, int64_t rows, int64_t cols, const std::string& hash,
                  const DataManifest& manifest) {
  check_there(file);
  const auto matrix = NpyMatrix::open(file);
  ATHANOR_CHECK_DATA(matrix.num_rows() == rows && matrix.num_cols() == cols,
                     "{}: shape [{}, {}], the manifest says [{}, {}]; {}", file.string(), matrix.num_rows(),
                     matrix.num_cols(), rows, cols, kRemedy);
  ATHANOR_CHECK_DATA(matrix.header().item_bytes == manifest.item_bytes(),
                     "{}: ids of {} bytes, the manifest says {}; {}", file.string(), matrix.header().item_bytes,
                     manifest.dtype, kRemedy);
  Hasher hasher;
  hasher.update(matrix.bytes().data(), matrix.header().data_offset);
  int64_t bad_row = -1;
  uint32_t bad_id = 0;
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - row) * cols;
    const auto* items = matrix.row(row);
    hasher.update(items, static_cast<size_t>(count * manifest.item_bytes()));
    const uint32_t largest =
        manifest.item_bytes() == 2 ? largest_id<uint16_t>(items, count) : largest_id<uint32_t>(items, count);
    if (largest >= manifest.vocab_size && bad_row < 0) {
      bad_row = row;
      bad_id = largest;
    }
  }
  check_hash(file, hasher.hex(), hash);
  ATHANOR_CHECK_DATA(bad_row < 0,
                     "{}: token id {} in row {} or one of the {} after it is beyond the vocabulary of {}; {}",
                     file.string(), bad_id, bad_row, kRowsAtOnce - 1, manifest.vocab_size, kRemedy);
}

void check_tokenizer(const fs::path& file, const DataManifest& manifest) {
  check_there(file);
  check_hash(file, hash_file(file), manifest.tokenizer_hash);
  const auto size = Tokenizer::load(file).vocab_size();
  ATHANOR_CHECK_DATA(size == manifest.vocab_size, "{}: {} tokens, the manifest says {}; {}", file.string(), size,
                     manifest.vocab_size, kRemedy);
}

uint64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return error ? 0 : size;
}

}  // namespace

uint64_t listed_bytes(const fs::path& folder, const DataManifest& manifest) {
  uint64_t total = size_of(folder / manifest.tokenizer_file);
  for (const auto& [name, split] : manifest.splits) {
    for (const auto& entry : split.files) total += size_of(folder / entry.file);
  }
  if (manifest.remainder) total += size_of(folder / manifest.remainder->file);
  return total;
}

void verify_shard(const fs::path& file, const ShardEntry& entry, const DataManifest& manifest) {
  check_matrix(file, entry.instances, manifest.seq_len, entry.hash, manifest);
}

VerifyReport verify_folder(const fs::path& folder, const DataManifest& manifest, ProgressBar& progress) {
  VerifyReport report;
  const auto check = [&](const fs::path& file, auto&& look) {
    try {
      look(file);
    } catch (const Error& error) {  // IoError too: a disk that cannot read is damage as well
      report.damage.emplace_back(error.what());
    }
    ++report.num_files;
    report.num_bytes += size_of(file);
    progress.add(size_of(file));
  };
  check(folder / manifest.tokenizer_file, [&](const fs::path& file) { check_tokenizer(file, manifest); });
  for (const auto& [name, split] : manifest.splits) {
    for (const auto& entry : split.files) {
      check(folder / entry.file, [&](const fs::path& file) { verify_shard(file, entry, manifest); });
    }
  }
  if (manifest.remainder) {
    check(folder / manifest.remainder->file, [&](const fs::path& file) {
      check_matrix(file, 1, manifest.remainder_tokens, manifest.remainder->hash, manifest);
    });
  }
  return report;
}

}  // namespace athanor
