#include "prepare/prepare_job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/text_template_json.h"
#include "dataset/manifest.h"
#include "dataset/prepared_folder.h"
#include "documents/attribute_records.h"
#include "documents/selection.h"
#include "documents/standard_input.h"
#include "prepare/added_files.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto whole = fs::weakly_canonical(path), base = fs::weakly_canonical(folder);
  const auto [in_base, in_whole] = std::mismatch(base.begin(), base.end(), whole.begin(), whole.end());
  return in_base == base.end();
}

// Checks that `out` may be replaced. A folder that is absent or empty always may. Any other may only with `overwrite`,
// and only if it holds prepared data, so that a mistyped --out does not destroy documents, and no input is in it.
// @throws ConfigError with the remedy if it may not.
void check_replaceable(const fs::path& out, bool overwrite, const std::vector<fs::path>& inputs) {
  if (!fs::exists(out)) return;
  ATHANOR_CHECK(fs::is_directory(out), "--out {} is a file; name a folder", out.string());
  if (fs::is_empty(out)) return;
  ATHANOR_CHECK(holds_prepared_data(out),
                "--out {} contains something other than prepared data (no {} of them); name another folder, or move it "
                "away",
                out.string(), kDataManifestName);
  ATHANOR_CHECK(overwrite, "--out {} is not empty; --overwrite replaces it", out.string());
  for (const auto& input : inputs) {
    if (is_standard_input(input)) continue;
    ATHANOR_CHECK(!lies_in(input, out), "the input {} is in --out {}, which would be replaced; name another folder",
                  input.string(), out.string());
  }
}

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

TextTemplate choose_template(const Tokenizer& tokenizer, const PrepareOptions& options, uint32_t eos_id) {
  if (options.add_special_tokens) {
    TextTemplate around = tokenizer.text_template().without_end(eos_id);
    ATHANOR_CHECK(!around.empty(),
                  "--add-special-tokens: the tokenizer puts no token around a text{}; leave the option out",
                  tokenizer.text_template().empty() ? "" : " but the one that ends each document in any case");
    return around;
  }
  try {
    if (const auto around = tokenizer.text_template().without_end(eos_id); !around.empty())
      log::info(
          "the tokenizer puts {} around a text, and the documents are prepared without it; --add-special-tokens "
          "puts it there",
          tokenizer.describe(around.around({})));
  } catch (const DataError& error) {
    log::info("documents are prepared without tokens around them, whatever the tokenizer asks for ({})", error.what());
  }
  return {};
}

PrepareJob new_job(const PrepareOptions& options) {
  auto tokenizer = Tokenizer::load(options.tokenizer);
  PrepareJob job{std::move(tokenizer), options.documents, {}, {}, {}, {}};
  auto& manifest = job.manifest;
  manifest.tokenizer_file = job.tokenizer.file_name();
  manifest.tokenizer_hash = job.tokenizer.hash();
  manifest.vocab_size = job.tokenizer.vocab_size();
  manifest.eos_id = find_eos(job.tokenizer, options.eos);
  manifest.text_template = choose_template(job.tokenizer, options, manifest.eos_id);
  manifest.split_special_tokens = options.split_special_tokens;
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
  nlohmann::json key{{"--tokenizer", manifest.tokenizer_hash},
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
  // Work that a program without these options began is continued.
  if (!manifest.text_template.empty()) key["--add-special-tokens"] = text_template_json(manifest.text_template);
  if (manifest.split_special_tokens) key["--split-special-tokens"] = true;
  return key;
}

namespace {

std::string describe_special(const Tokenizer& tokenizer, const std::vector<uint32_t>& special) {
  std::vector<std::string> texts;
  for (const uint32_t id : special) texts.push_back(tokenizer.decode(std::vector<uint32_t>{id}));
  return texts.empty() ? "" : fmt::format(" ({})", join_first(texts, 5, ", "));
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
  // A piece of the vocabulary with such a name is a piece of text.
  std::vector<std::string> found;
  const auto special = tokenizer.special_ids();
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"}) {
    const auto id = tokenizer.token_to_id(name);
    if (id && std::ranges::binary_search(special, *id)) found.emplace_back(name);
  }
  ATHANOR_CHECK(!found.empty(),
                "no file of the tokenizer names its eos_token, and none of its special tokens{} has one of "
                "the usual names of an end of a document; name one with --eos",
                describe_special(tokenizer, special));
  ATHANOR_CHECK(found.size() == 1, "the tokenizer has {}: choose the one that ends a document, with --eos '{}'",
                join(found, " and "), found.front());
  return *tokenizer.token_to_id(found.front());
}

int64_t num_validation_instances(int64_t num_instances, double fraction) {
  if (fraction <= 0) return 0;
  const auto nearest = static_cast<int64_t>(std::llround(fraction * static_cast<double>(num_instances)));
  return std::clamp<int64_t>(nearest, 1, num_instances - 1);
}

}  // namespace athanor::inline preparation
