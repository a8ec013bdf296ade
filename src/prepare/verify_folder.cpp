#include "prepare/verify_folder.h"

#include "base/error.h"
#include "dataset/verify.h"
#include "tokenizer/tokenizer.h"

namespace athanor {

namespace fs = std::filesystem;

namespace {

void check_tokenizer(const fs::path& file, const DataManifest& manifest) {
  verify_tokenizer_file(file, manifest);
  const auto size = Tokenizer::load(file).vocab_size();
  ATHANOR_CHECK_DATA(size == manifest.vocab_size, "{}: {} tokens, the manifest has {}; {}", file.string(), size,
                     manifest.vocab_size, kDamagedDataRemedy);
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
  for (const auto& part : manifest.parts) {
    if (part.checksums)
      check(folder / part.checksums->file, [&](const fs::path&) { verify_checksum_file(folder, *part.checksums); });
  }
  if (manifest.remainder) {
    check(folder / manifest.remainder->file, [&](const fs::path&) { verify_remainder(folder, manifest); });
  }
  return report;
}

}  // namespace athanor
