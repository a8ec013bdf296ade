#include "data/prepare.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/fault.h"
#include "base/files.h"
#include "base/random.h"
#include "base/text.h"
#include "data/replaced_folder.h"
#include "data/shards.h"
#include "data/tokenize.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxSeqLen = int64_t{1} << 30;
constexpr uint32_t kMaxUint16Vocabulary = 65536;
constexpr const char* kSpillName = ".tokens";

void check_options(const PrepareOptions& options) {
  ATHANOR_CHECK(options.seq_len >= 2 && options.seq_len <= kMaxSeqLen,
                "--seq-len ({}) must be in [2, {}]: an instance of n tokens has n - 1 targets", options.seq_len,
                kMaxSeqLen);
  ATHANOR_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
                "--validation-fraction ({}) must be in [0, 1)", options.validation_fraction);
  ATHANOR_CHECK(options.num_threads >= 0, "--threads ({}) must not be negative", options.num_threads);
  ATHANOR_CHECK(options.shard_bytes > 0, "--shard-bytes ({}) must be at least 1", options.shard_bytes);
  ATHANOR_CHECK(!options.out.empty(), "--out must name a folder");
}

int thread_count(const PrepareOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// A file of size unknown (a pipe) counts for nothing in the progress bar.
uint64_t total_bytes(const std::vector<fs::path>& files) {
  uint64_t total = 0;
  for (const auto& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) total += size;
  }
  return total;
}

// Step 1. Fills in what the manifest says of the inputs.
void tokenize(const PrepareOptions& options, const std::vector<fs::path>& files, const Tokenizer& tokenizer,
              TokenStream& stream, DataManifest& manifest) {
  TokenizeOptions tokenizing{options.documents, manifest.eos_id, thread_count(options), options.chunk_bytes};
  ProgressBar progress("tokenizing", total_bytes(files), "B");
  auto counts = tokenize_files(files, tokenizer, tokenizing, stream, progress);
  stream.finish();
  progress.finish();
  manifest.inputs = std::move(counts.inputs);
  manifest.skipped = std::move(counts.skipped);
  manifest.text_bytes = counts.text_bytes;
  for (const auto& input : manifest.inputs) manifest.documents += input.documents;
  manifest.tokens = stream.num_tokens();
  ATHANOR_CHECK_DATA(manifest.documents > 0, "no documents in {} files (skipped: {})", files.size(),
                     describe_skips(manifest.skipped));
}

// Steps 2 and 3.
void shuffle_and_gather(const PrepareOptions& options, const TokenStream& stream, const fs::path& folder,
                        DataManifest& manifest) {
  const int64_t num_instances = manifest.tokens / manifest.seq_len;
  manifest.remainder_tokens = manifest.tokens % manifest.seq_len;
  const int64_t needed = options.validation_fraction > 0 ? 2 : 1;
  ATHANOR_CHECK_DATA(num_instances >= needed,
                     "{} tokens make {} instances of {}, at least {} is needed; lower --seq-len or give more documents",
                     manifest.tokens, num_instances, manifest.seq_len, needed);
  const int64_t num_validation = num_validation_instances(num_instances, options.validation_fraction);
  const int64_t num_train = num_instances - num_validation;
  const Permutation order(static_cast<uint64_t>(num_instances), manifest.seed, "prepare instances");
  const ShardOptions sharding{manifest.seq_len, manifest.item_bytes(), options.shard_bytes, thread_count(options)};
  manifest.splits["train"] = write_shards(stream, order, 0, num_train, folder, "train", sharding);
  if (num_validation == 0) return;
  manifest.splits["validation"] =
      write_shards(stream, order, num_train, num_validation, folder, "validation", sharding);
}

}  // namespace

uint32_t find_eos(const Tokenizer& tokenizer, const std::string& choice) {
  if (!choice.empty() && choice.find_first_not_of("0123456789") == std::string::npos) {
    const uint64_t id = choice.size() > 10 ? UINT64_MAX : std::stoull(choice);
    ATHANOR_CHECK(id < tokenizer.vocab_size(), "--eos {} is beyond the tokenizer's {} tokens", choice,
                  tokenizer.vocab_size());
    return static_cast<uint32_t>(id);
  }
  if (!choice.empty()) {
    const auto id = tokenizer.token_to_id(choice);
    ATHANOR_CHECK(id, "--eos: the tokenizer has no token \"{}\"; name one of its tokens or an id below {}", choice,
                  tokenizer.vocab_size());
    return *id;
  }
  if (const auto id = tokenizer.eos_id()) return *id;
  std::vector<std::string> found;
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"}) {
    if (tokenizer.token_to_id(name)) found.emplace_back(name);
  }
  ATHANOR_CHECK(!found.empty(), "the tokenizer has none of the usual end-of-document tokens; name one with --eos");
  ATHANOR_CHECK(found.size() == 1, "the tokenizer has {}: say which one ends a document, with --eos '{}'",
                join(found, " and "), found.front());
  return *tokenizer.token_to_id(found.front());
}

int64_t num_validation_instances(int64_t num_instances, double fraction) {
  if (fraction <= 0) return 0;
  const auto nearest = static_cast<int64_t>(std::llround(fraction * static_cast<double>(num_instances)));
  return std::clamp<int64_t>(nearest, 1, num_instances - 1);
}

DataManifest prepare(const PrepareOptions& options) {
  check_options(options);
  const auto tokenizer = Tokenizer::load(options.tokenizer);
  const auto files = expand_inputs(options.inputs);
  check_replaceable(options.out, options.overwrite, files);

  DataManifest manifest;
  manifest.tokenizer_file = tokenizer.file_name();
  manifest.tokenizer_hash = tokenizer.hash();
  manifest.vocab_size = tokenizer.vocab_size();
  manifest.eos_id = find_eos(tokenizer, options.eos);
  manifest.seq_len = options.seq_len;
  manifest.seed = options.seed;
  manifest.dtype = manifest.vocab_size <= kMaxUint16Vocabulary ? "uint16" : "uint32";

  AtomicFolder folder(options.out);
  {
    TokenStream stream(folder.staging() / kSpillName, manifest.item_bytes());
    tokenize(options, files, tokenizer, stream, manifest);
    fault_point("prepare.before_gather");
    shuffle_and_gather(options, stream, folder.staging(), manifest);
  }
  write_file_atomically(folder.staging() / manifest.tokenizer_file, tokenizer.file_bytes());
  write_file_atomically(folder.staging() / kDataManifestName, data_manifest_text(manifest));
  fault_point("prepare.before_commit");
  commit_replacing(folder, options.out);
  return manifest;
}

}  // namespace athanor
