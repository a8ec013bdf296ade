#include "prepare/verify_folder.h"

#include <map>

#include "base/error.h"
#include "dataset/block_checksums.h"
#include "dataset/verify.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline preparation {

namespace fs = std::filesystem;

namespace {

void check_tokenizer(const fs::path& file, const DataManifest& manifest) {
  verify_tokenizer_file(file, manifest);
  const auto size = Tokenizer::load(file).vocab_size();
  ATHANOR_CHECK_DATA(size == manifest.vocab_size, "{}: {} tokens, the manifest has {}; {}", file.string(), size,
                     manifest.vocab_size, kDamagedDataRemedy);
}

// Returns what is wrong with the checksums of a part; empty if nothing is.
std::string damage_of_checksums(const fs::path& folder, const PartEntry& part, int64_t num_blocks) {
  try {
    verify_checksum_file(folder, *part.checksums, num_blocks);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void verify_blocks(const fs::path& folder, const ShardEntry& entry, const ShardBlocks& blocks,
                   const DataManifest& manifest) {
  const auto shard = open_shard(folder / entry.file, entry, manifest);
  const auto checksums = open_checksums(folder / blocks.file, blocks.file_blocks);
  for (int64_t i = 0; i < count_blocks(entry.instances, blocks.block_rows); ++i)
    read_block(shard, checksums, blocks, i);
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
  for (const auto& part : manifest.parts)
    if (part.checksums) total += size_of(folder / part.checksums->file);
  if (manifest.remainder) total += size_of(folder / manifest.remainder->file);
  return total;
}

VerifyReport verify_folder(const fs::path& folder, const DataManifest& manifest, ProgressBar& progress) {
  VerifyReport report;
  const auto blocks = find_blocks(manifest, (folder / kDataManifestName).string());
  std::map<std::string, std::string> checksums;  // what is wrong with each file of checksums, which is read first
  for (size_t i = 0; i < manifest.parts.size(); ++i) {
    const auto& part = manifest.parts[i];
    if (part.checksums) checksums[part.checksums->file] = damage_of_checksums(folder, part, blocks.of_parts[i]);
  }
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
    for (size_t i = 0; i < split.files.size(); ++i) {
      const auto& entry = split.files[i];
      const auto& of_shard = blocks.shards.at(name)[i];
      check(folder / entry.file, [&](const fs::path& file) {
        verify_shard(file, entry, manifest);
        if (of_shard && checksums.at(of_shard->file).empty()) verify_blocks(folder, entry, *of_shard, manifest);
      });
    }
  }
  for (const auto& [file, damage] : checksums) {
    check(folder / file, [&found = damage](const fs::path&) { ATHANOR_CHECK_DATA(found.empty(), "{}", found); });
  }
  if (manifest.remainder) {
    check(folder / manifest.remainder->file, [&](const fs::path&) { verify_remainder(folder, manifest); });
  }
  return report;
}

}  // namespace athanor::inline preparation
