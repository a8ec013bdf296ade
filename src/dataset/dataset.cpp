#include "dataset/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/text.h"
#include "dataset/block_checksums.h"
#include "dataset/npy.h"
#include "dataset/verify.h"

namespace athanor::inline dataset {
namespace fs = std::filesystem;

namespace {

constexpr const char* kRemedy = "prepare the data again";

struct Shard {
  const ShardEntry* entry;
  std::string path;
  int64_t first_row;
  std::optional<ShardBlocks> blocks;  // where the checksums of its blocks are
};

// Converts ids of `Item` to int32. Returns the first id that is beyond the vocabulary, or -1.
template <class Item>
int64_t widen_ids(const std::byte* row, int64_t seq_len, uint32_t vocab_size, int32_t* out) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < seq_len; ++i) {
    Item id;
    std::memcpy(&id, row + i * static_cast<int64_t>(sizeof(Item)), sizeof(Item));
    largest = std::max(largest, uint32_t{id});
    out[i] = static_cast<int32_t>(id);
  }
  if (largest < vocab_size) return -1;
  return std::find_if(out, out + seq_len, [&](int32_t id) { return static_cast<uint32_t>(id) >= vocab_size; }) - out;
}

// Returns the number of instances and the hash of the content after each shard.
std::vector<std::pair<int64_t, std::string>> hash_growth(const DataManifest& manifest, const SplitEntry& split) {
  Hasher hasher;
  const auto put = [&](const std::string& text) { hasher.update(text.c_str(), text.size() + 1); };
  put(fmt::format("{} {}", manifest.dtype, manifest.seq_len));
  std::vector<std::pair<int64_t, std::string>> growth;
  int64_t instances = 0;
  for (const auto& file : split.files) {
    put(fmt::format("{} {}", file.instances, file.hash));
    growth.emplace_back(instances += file.instances, hasher.hex());
  }
  return growth;
}

}  // namespace

struct Dataset::Impl {
  fs::path folder;
  std::string split;
  std::shared_ptr<const DataManifest> manifest;
  std::shared_ptr<ShardAccess> access;
  std::vector<std::pair<int64_t, std::string>> growth;  // instances and their hash after each shard
  int64_t num_instances = 0;
  std::vector<Shard> shards;    // shards that have instances
  std::vector<DataFile> files;  // the tokenizer, then each shard of the split, including empty ones, then checksums
  std::vector<std::pair<ChecksumEntry, int64_t>> checksums;  // with the number of their blocks

  const std::vector<ShardEntry>& entries() const { return manifest->splits.at(split).files; }

  void add_shards() {
    const auto row_bytes = static_cast<uint64_t>(manifest->seq_len * manifest->item_bytes());
    auto [shard_blocks, of_parts] = find_blocks(*manifest, (folder / kDataManifestName).string());
    const auto& blocks = shard_blocks.at(split);
    files.push_back({folder / manifest->tokenizer_file, 1});
    for (size_t i = 0; i < entries().size(); ++i) {
      const auto& entry = entries()[i];
      const auto header = npy_header(manifest->item_bytes(), entry.instances, manifest->seq_len).size();
      files.push_back(
          {folder / entry.file, header + static_cast<uint64_t>(entry.instances) * row_bytes, blocks[i].has_value()});
      if (entry.instances == 0) continue;
      shards.push_back({&entry, files.back().path.string(), num_instances, blocks[i]});
      num_instances += entry.instances;
    }
    for (size_t i = 0; i < manifest->parts.size(); ++i) {
      const auto& part = manifest->parts[i];
      if (!part.checksums) continue;
      checksums.emplace_back(*part.checksums, of_parts[i]);
      files.push_back({folder / part.checksums->file, 1});
    }
  }

  // Copies a row. The first row of a block that is read costs a read of the whole block.
  void read_row(const Shard& shard, int64_t row, std::byte* out) const {
    const auto& blocks = shard.blocks;
    const bool verifies = blocks && access->verify_blocks;
    const int64_t block = verifies ? row / blocks->block_rows : 0;
    auto [bytes, verified] = verifies ? access->blocks.find(shard.path, block) : BlockCache::Found{nullptr, true};
    if (!bytes) {
      const auto matrix = access->open.get(shard.path, [&] { return open_shard(shard.path, *shard.entry, *manifest); });
      if (const int injected = fault_errno("data.read")) fail_reading(shard.path, matrix->offset_of(row), injected);
      if (verified) return matrix->read_row(row, out);
      const auto sums = access->open.get((folder / blocks->file).string(),
                                         [&] { return open_checksums(folder / blocks->file, blocks->file_blocks); });
      bytes = std::make_shared<std::vector<std::byte>>(read_block(*matrix, *sums, *blocks, block));
      access->blocks.add(shard.path, block, bytes);
    }
    const auto row_bytes = static_cast<size_t>(manifest->seq_len * manifest->item_bytes());
    std::memcpy(out, bytes->data() + static_cast<size_t>(row - block * blocks->block_rows) * row_bytes, row_bytes);
  }

  const Shard& shard_of(int64_t row) const {
    const auto after = std::upper_bound(shards.begin(), shards.end(), row,
                                        [](int64_t value, const Shard& shard) { return value < shard.first_row; });
    return *std::prev(after);
  }
};

Dataset Dataset::open(const fs::path& folder, const std::string& split) {
  return open(folder, split, std::make_shared<DataManifest>(read_data_manifest(folder)),
              std::make_shared<ShardAccess>());
}

Dataset Dataset::open(const fs::path& folder, const std::string& split, std::shared_ptr<const DataManifest> manifest,
                      std::shared_ptr<ShardAccess> access) {
  auto impl = std::make_shared<Impl>();
  impl->folder = folder;
  impl->split = split;
  impl->manifest = std::move(manifest);
  impl->access = std::move(access);
  const auto& splits = impl->manifest->splits;
  const auto found = splits.find(split);
  if (found == splits.end()) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : splits) names.push_back(name);
    fail<DataError>("{} has no split \"{}\", only {}; {}", folder.string(), split, join(names),
                    split == "validation" ? "prepare it with --validation-fraction" : "name one of these");
  }
  impl->growth = hash_growth(*impl->manifest, found->second);
  impl->add_shards();
  ATHANOR_CHECK_DATA(impl->num_instances > 0, "{}: no instances in the split \"{}\"; {}", folder.string(), split,
                     kRemedy);
  return Dataset(std::move(impl));
}

int64_t Dataset::num_instances() const { return impl_->num_instances; }
int64_t Dataset::seq_len() const { return impl_->manifest->seq_len; }
uint32_t Dataset::vocab_size() const { return impl_->manifest->vocab_size; }
uint32_t Dataset::eos_id() const { return impl_->manifest->eos_id; }
const DataManifest& Dataset::manifest() const { return *impl_->manifest; }
const fs::path& Dataset::folder() const { return impl_->folder; }
const std::string& Dataset::content_hash() const { return impl_->growth.back().second; }
const std::string& Dataset::split() const { return impl_->split; }
fs::path Dataset::tokenizer_file() const { return impl_->folder / impl_->manifest->tokenizer_file; }

std::optional<int64_t> Dataset::instances_when(const std::string& hash) const {
  for (const auto& [instances, then] : impl_->growth) {
    if (then == hash) return instances;
  }
  return std::nullopt;
}

std::vector<int64_t> Dataset::rows_of_parts() const {
  std::vector<int64_t> rows;
  for (const auto& part : manifest().parts) {
    const auto found = part.instances.find(impl_->split);
    if (found != part.instances.end()) rows.push_back(found->second);
  }
  return rows;
}

const std::vector<DataFile>& Dataset::files() const { return impl_->files; }

void Dataset::read(int64_t row, int32_t* out) const {
  ATHANOR_ASSERT(row >= 0 && row < num_instances());
  const auto& shard = impl_->shard_of(row);
  const int64_t in_shard = row - shard.first_row;
  const int item_bytes = impl_->manifest->item_bytes();
  // Ids of two bytes are read into the second half of `out` and widened from the front; each is read before it is
  // overwritten.
  auto* bytes = reinterpret_cast<std::byte*>(out) + seq_len() * (4 - item_bytes);
  impl_->read_row(shard, in_shard, bytes);
  const int64_t bad = item_bytes == 2 ? widen_ids<uint16_t>(bytes, seq_len(), vocab_size(), out)
                                      : widen_ids<uint32_t>(bytes, seq_len(), vocab_size(), out);
  ATHANOR_CHECK_DATA(bad < 0, "{}: row {}, position {}: token id {} is beyond the vocabulary of {}; {}", shard.path,
                     in_shard, bad, static_cast<uint32_t>(out[bad]), vocab_size(), kRemedy);
}

bool Dataset::is_shard(size_t index) const { return index > 0 && index <= impl_->entries().size(); }

void Dataset::check_file(size_t index) const {
  if (index > impl_->entries().size()) return verify_file(index);  // it is small
  if (is_shard(index)) {
    open_shard(impl_->files.at(index).path, impl_->entries().at(index - 1), *impl_->manifest);
    return;
  }
  ATHANOR_CHECK_DATA(fs::exists(tokenizer_file()), "{} is missing, the manifest lists it; {}",
                     tokenizer_file().string(), kRemedy);
}

void Dataset::verify_file(size_t index, const Worked& worked) const {
  if (index == 0) return verify_tokenizer_file(tokenizer_file(), *impl_->manifest, worked);
  const size_t num_shards = impl_->entries().size();
  if (index > num_shards) {
    const auto& [entry, num_blocks] = impl_->checksums.at(index - num_shards - 1);
    return verify_checksum_file(impl_->folder, entry, num_blocks, worked);
  }
  verify_shard(impl_->files.at(index).path, impl_->entries().at(index - 1), *impl_->manifest, worked);
}

void Dataset::verify() const {
  for (size_t i = 0; i < files().size(); ++i) verify_file(i);
}

void count_targets(const Dataset& dataset, int64_t begin, int64_t end, std::vector<int64_t>& counts,
                   const Worked& worked) {
  ATHANOR_ASSERT(counts.size() == dataset.vocab_size());
  std::vector<int32_t> row(static_cast<size_t>(dataset.seq_len()));
  for (int64_t i = begin; i < end; ++i) {
    dataset.read(i, row.data());
    for (size_t t = 1; t < row.size(); ++t) ++counts[static_cast<size_t>(row[t])];
    if (worked) worked(static_cast<int64_t>(row.size()) * dataset.manifest().item_bytes());
  }
}

double unigram_entropy(const std::vector<int64_t>& counts) {
  // H = log(N) - sum(c log(c)) / N is the same sum as -sum(p log(p)), with one division.
  double sum = 0, total = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    total += static_cast<double>(count);
    sum += static_cast<double>(count) * std::log(static_cast<double>(count));
  }
  return std::log(total) - sum / total;
}

}  // namespace athanor::inline dataset
