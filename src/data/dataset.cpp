#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/npy.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

constexpr const char* kRemedy = "prepare the data again";

struct Shard {
  NpyMatrix matrix;
  std::string name;
  int64_t first_row;
};

// Ids of `Item` to int32; the first one beyond the vocabulary, or -1.
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

void check_hash(const fs::path& file, const std::string& actual, const std::string& expected) {
  ATHANOR_CHECK_DATA(actual == expected, "{}: damaged: its checksum is {}, the manifest says {}; {}", file.string(),
                     actual, expected, kRemedy);
}

// After each shard: instances so far, and the hash of what they are.
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
  DataManifest manifest;
  std::vector<std::pair<int64_t, std::string>> growth;  // instances and their hash after each shard
  int64_t num_instances = 0;
  std::vector<Shard> shards;

  void add_shard(const ShardEntry& entry) {
    const auto file = folder / entry.file;
    std::error_code ignored;
    ATHANOR_CHECK_DATA(fs::exists(file, ignored), "{} is missing, the manifest lists it; {}", file.string(), kRemedy);
    auto matrix = NpyMatrix::open(file);
    ATHANOR_CHECK_DATA(matrix.num_rows() == entry.instances && matrix.num_cols() == manifest.seq_len,
                       "{}: shape [{}, {}], the manifest says [{}, {}]; {}", file.string(), matrix.num_rows(),
                       matrix.num_cols(), entry.instances, manifest.seq_len, kRemedy);
    ATHANOR_CHECK_DATA(matrix.header().item_bytes == manifest.item_bytes(),
                       "{}: ids of {} bytes, the manifest says {}; {}", file.string(), matrix.header().item_bytes,
                       manifest.dtype, kRemedy);
    shards.push_back({std::move(matrix), file.string(), num_instances});
    num_instances += entry.instances;
  }

  const Shard& shard_of(int64_t row) const {
    const auto after = std::upper_bound(shards.begin(), shards.end(), row,
                                        [](int64_t value, const Shard& shard) { return value < shard.first_row; });
    return *std::prev(after);
  }
};

Dataset Dataset::open(const fs::path& folder, const std::string& split) {
  auto impl = std::make_shared<Impl>();
  impl->folder = folder;
  impl->split = split;
  impl->manifest = read_data_manifest(folder);
  const auto& splits = impl->manifest.splits;
  const auto found = splits.find(split);
  if (found == splits.end()) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : splits) names.push_back(name);
    fail<DataError>("{} has no split \"{}\", only {}; prepare it with --validation-fraction", folder.string(), split,
                    join(names));
  }
  impl->growth = hash_growth(impl->manifest, found->second);
  for (const auto& entry : found->second.files) {
    if (entry.instances > 0) impl->add_shard(entry);
  }
  ATHANOR_CHECK_DATA(impl->num_instances > 0, "{}: no instances in the split \"{}\"; {}", folder.string(), split,
                     kRemedy);
  return Dataset(std::move(impl));
}

int64_t Dataset::num_instances() const { return impl_->num_instances; }
int64_t Dataset::seq_len() const { return impl_->manifest.seq_len; }
uint32_t Dataset::vocab_size() const { return impl_->manifest.vocab_size; }
uint32_t Dataset::eos_id() const { return impl_->manifest.eos_id; }
const DataManifest& Dataset::manifest() const { return impl_->manifest; }
const fs::path& Dataset::folder() const { return impl_->folder; }
const std::string& Dataset::content_hash() const { return impl_->growth.back().second; }
const std::string& Dataset::split() const { return impl_->split; }
fs::path Dataset::tokenizer_file() const { return impl_->folder / impl_->manifest.tokenizer_file; }

std::optional<int64_t> Dataset::instances_when(const std::string& hash) const {
  for (const auto& [instances, then] : impl_->growth) {
    if (then == hash) return instances;
  }
  return std::nullopt;
}

uint64_t Dataset::num_bytes() const {
  uint64_t total = 0;
  for (const auto& shard : impl_->shards) total += shard.matrix.bytes().size();
  return total;
}

void Dataset::read(int64_t row, int32_t* out) const {
  ATHANOR_ASSERT(row >= 0 && row < num_instances());
  const auto& shard = impl_->shard_of(row);
  const int64_t in_shard = row - shard.first_row;
  const auto* bytes = shard.matrix.row(in_shard);
  const int64_t bad = impl_->manifest.item_bytes() == 2 ? widen_ids<uint16_t>(bytes, seq_len(), vocab_size(), out)
                                                        : widen_ids<uint32_t>(bytes, seq_len(), vocab_size(), out);
  ATHANOR_CHECK_DATA(bad < 0, "{}: row {}, position {}: token id {} is beyond the vocabulary of {}; {}", shard.name,
                     in_shard, bad, static_cast<uint32_t>(out[bad]), vocab_size(), kRemedy);
}

void Dataset::verify() const {
  const auto& manifest = impl_->manifest;
  for (const auto& entry : manifest.splits.at(impl_->split).files) {
    check_hash(impl_->folder / entry.file, hash_file(impl_->folder / entry.file), entry.hash);
  }
  check_hash(tokenizer_file(), hash_file(tokenizer_file()), manifest.tokenizer_hash);
}

double unigram_entropy(const Dataset& dataset) {
  std::vector<int64_t> counts(dataset.vocab_size());
  std::vector<int32_t> row(static_cast<size_t>(dataset.seq_len()));
  for (int64_t i = 0; i < dataset.num_instances(); ++i) {
    dataset.read(i, row.data());
    for (size_t t = 1; t < row.size(); ++t) ++counts[static_cast<size_t>(row[t])];
  }
  // H = log(N) - sum(c log(c)) / N, the same sum as -sum(p log(p)) with one division.
  double sum = 0, total = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    total += static_cast<double>(count);
    sum += static_cast<double>(count) * std::log(static_cast<double>(count));
  }
  return std::log(total) - sum / total;
}

}  // namespace athanor
