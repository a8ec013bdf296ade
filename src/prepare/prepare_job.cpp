#include "prepare/prepare_job.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "documents/attribute_records.h"
#include "documents/selection.h"
#include "documents/standard_input.h"
#include "prepare/added_files.h"
#include "prepare/replaced_folder.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxSeqLen = int64_t{1} << 30;
constexpr uint32_t kMaxUint16Vocabulary = 65536;
constexpr uint64_t kDefaultSeed = 1, kDefaultShardBytes = uint64_t{256} << 20;

void check_options(const PrepareOptions& options) {
  ATHANOR_CHECK(!options.out.empty(), "--out must name a folder");
  ATHANOR_CHECK(options.add || !options.tokenizer.empty(), "--tokenizer is needed");
  ATHANOR_CHECK(options.add || options.seq_len != 0, "--seq-len is needed");
  ATHANOR_CHECK((options.add && options.seq_len == 0) || (options.seq_len >= 2 && options.seq_len <= kMaxSeqLen),
                "--seq-len ({}) must be in [2, {}]: an instance of n tokens has n - 1 targets", options.seq_len,
                kMaxSeqLen);
  const double fraction = options.validation_fraction.value_or(0);
  ATHANOR_CHECK(fraction >= 0 && fraction < 1, "--validation-fraction ({}) must be in [0, 1)", fraction);
  ATHANOR_CHECK(options.num_threads >= 0, "--threads ({}) must not be negative; 0 takes one for each core",
                options.num_threads);
  ATHANOR_CHECK(options.shard_bytes.value_or(1) > 0, "--shard-bytes ({}) must be at least 1", *options.shard_bytes);
  ATHANOR_CHECK(!(options.add && options.overwrite), "--add keeps what is in --out, --overwrite replaces it: give one");
}

PrepareJob new_job(const PrepareOptions& options) {
  auto tokenizer = Tokenizer::load(options.tokenizer);
  PrepareJob job{std::move(tokenizer), options.documents, {}, {}, {}, {}};
  auto& manifest = job.manifest;
  manifest.tokenizer_file = job.tokenizer.file_name();
  manifest.tokenizer_hash = job.tokenizer.hash();
  manifest.vocab_size = job.tokenizer.vocab_size();
  manifest.eos_id = find_eos(job.tokenizer, options.eos);
  manifest.seq_len = options.seq_len;
  manifest.seed = options.seed.value_or(kDefaultSeed);
  manifest.dtype = manifest.vocab_size <= kMaxUint16Vocabulary ? "uint16" : "uint32";
  manifest.validation_fraction = options.validation_fraction.value_or(0);
  manifest.text_field = options.documents.text_field;
  if (options.documents.selection) manifest.selection = options.documents.selection->options();
  manifest.shard_bytes = options.shard_bytes.value_or(kDefaultShardBytes);
  const auto files = expand_inputs(options.inputs);
  check_replaceable(options.out, options.overwrite, files);
  for (const auto& file : files) job.files.push_back(look_at_input(file));
  return job;
}

}  // namespace

PrepareJob plan_job(const PrepareOptions& options) {
  check_options(options);
  check_standard_input(options.inputs, options.documents);
  auto job = options.add ? plan_addition(options) : new_job(options);
  for (const auto& file : job.files) check_attribute_files(file.path, job.documents);
  return job;
}

nlohmann::json PrepareJob::key(uint64_t chunk_bytes) const {
  const auto& selection = manifest.selection;
  return {{"--tokenizer", manifest.tokenizer_hash},
          {"--attributes", selection.attributes},
          {"--keep", selection.keep},
          {"--drop", selection.drop},
          {"--seq-len", manifest.seq_len},
          {"--seed", manifest.seed},
          {"--eos", manifest.eos_id},
          {"--text-field", documents.text_field},
          {"--on-error", documents.on_error == OnError::kFail ? "fail" : "skip"},
          {"--validation-fraction", manifest.validation_fraction},
          {"--shard-bytes", manifest.shard_bytes},
          {"--add to", base_hash},
          {"chunk_bytes", chunk_bytes}};
}

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
  ATHANOR_CHECK(found.size() == 1, "the tokenizer has {}: choose the one that ends a document, with --eos '{}'",
                join(found, " and "), found.front());
  return *tokenizer.token_to_id(found.front());
}

int64_t num_validation_instances(int64_t num_instances, double fraction) {
  if (fraction <= 0) return 0;
  const auto nearest = static_cast<int64_t>(std::llround(fraction * static_cast<double>(num_instances)));
  return std::clamp<int64_t>(nearest, 1, num_instances - 1);
}

}  // namespace athanor
