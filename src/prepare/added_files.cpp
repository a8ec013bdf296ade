#include "prepare/added_files.h"

#include <cstring>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "dataset/npy.h"
#include "documents/selection.h"
#include "documents/standard_input.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

template <class Value>
void check_same(const std::string& flag, const Value& given, const Value& there, const fs::path& out) {
  ATHANOR_CHECK(given == there, "{} {}, but {} was prepared with {}; leave {} out to add files to it", flag, given,
                out.string(), there, flag);
}

void check_options_agree(const PrepareOptions& options, const DataManifest& there, const Tokenizer& tokenizer) {
  const auto& out = options.out;
  if (!options.tokenizer.empty()) {
    check_same("--tokenizer", Tokenizer::load(options.tokenizer).hash(), there.tokenizer_hash, out);
  }
  if (options.seq_len != 0) check_same("--seq-len", options.seq_len, there.seq_len, out);
  if (options.seed) check_same("--seed", *options.seed, there.seed, out);
  if (!options.eos.empty()) check_same("--eos", find_eos(tokenizer, options.eos), there.eos_id, out);
  ATHANOR_CHECK(
      !options.add_special_tokens || !there.text_template.empty(),
      "--add-special-tokens, but the documents of {} have no tokens around them; leave it out to add files to it",
      out.string());
  ATHANOR_CHECK(!options.split_special_tokens || there.split_special_tokens,
                "--split-special-tokens, but {} was prepared without; leave it out to add files to it", out.string());
  if (options.validation_fraction) {
    check_same("--validation-fraction", *options.validation_fraction, there.validation_fraction, out);
  }
}

// An option that is not given keeps its value.
std::shared_ptr<const Selection> selection_of(const PrepareOptions& options, const DataManifest& there) {
  const auto& wanted = options.documents.selection;
  if (!wanted) return make_selection(there.selection);
  ATHANOR_CHECK(wanted->options() == there.selection,
                "{} was prepared with other --attributes, --keep or --drop ({}); leave them out to add files to it",
                options.out.string(), there.selection.empty() ? "none" : "`athanor data info` shows them");
  return wanted;
}

// No shards may be added to a folder if one of its shards was truncated or replaced.
void check_shards(const fs::path& out, const DataManifest& there) {
  for (const auto& [name, split] : there.splits) {
    for (const auto& shard : split.files) {
      const auto file = out / shard.file;
      const uint64_t expected =
          npy_header(there.item_bytes(), shard.instances, there.seq_len).size() +
          static_cast<uint64_t>(shard.instances * there.seq_len) * static_cast<uint64_t>(there.item_bytes());
      std::error_code error;
      const auto bytes = fs::file_size(file, error);
      ATHANOR_CHECK_DATA(!error, "{} is missing, the manifest lists it; prepare the data again", file.string());
      ATHANOR_CHECK_DATA(bytes == expected, "{} has {} bytes, the manifest has {}; prepare the data again",
                         file.string(), bytes, expected);
    }
  }
}

std::vector<uint32_t> read_remainder(const fs::path& out, const DataManifest& there) {
  if (!there.remainder) return {};
  const auto file = out / there.remainder->file;
  const auto bytes = read_file(file);
  ATHANOR_CHECK_DATA(hash_hex(bytes) == there.remainder->hash,
                     "{}: damaged: its checksum is not the manifest's; prepare the data again", file.string());
  const auto header = parse_npy_header(bytes, file.string());
  check_npy_size(header, bytes.size(), file.string());
  ATHANOR_CHECK_DATA(
      header.item_bytes == there.item_bytes() && header.num_cols == there.remainder_tokens && header.num_rows == 1,
      "{}: shape [{}, {}], the manifest has [1, {}]; prepare the data again", file.string(), header.num_rows,
      header.num_cols, there.remainder_tokens);
  std::vector<uint32_t> tokens(static_cast<size_t>(header.num_cols));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::memcpy(&tokens[i], bytes.data() + header.data_offset + i * static_cast<size_t>(header.item_bytes),
                static_cast<size_t>(header.item_bytes));
  }
  return tokens;
}

// Returns the files that the folder does not have yet.
std::vector<InputFile> new_files(const std::vector<fs::path>& files, const DataManifest& there, const fs::path& out) {
  std::map<std::string, const InputEntry*> by_path;
  std::map<std::pair<int64_t, std::string>, const InputEntry*> by_content;
  for (const auto& input : there.inputs) {
    by_path[input.path] = &input;
    if (!input.fingerprint.empty()) by_content[{input.bytes, input.fingerprint}] = &input;
  }
  std::vector<InputFile> found;
  int64_t num_there = 0;
  for (const auto& path : files) {
    const auto file = look_at_input(path);
    const auto same_path = by_path.find(path.string());
    if (is_standard_input(path))
      log::info("standard input is not compared with what {} has: if it has the same documents, they are there twice",
                out.string());
    if (is_standard_input(path) || (same_path == by_path.end() && by_content.empty())) {
      found.push_back(file);
      continue;
    }
    const std::pair content{file.bytes, file.bytes < 0 ? std::string() : file_fingerprint(path)};
    const auto same_content = by_content.find(content);
    if (same_content != by_content.end()) {
      if (same_path == by_path.end()) {
        log::warn("{} is {}, which is in {} already: it is left out", path.string(), same_content->second->path,
                  out.string());
      }
      ++num_there;
      continue;
    }
    ATHANOR_CHECK_DATA(same_path == by_path.end(),
                       "{} is in {} already and has changed since; what was made of it cannot be taken out: prepare "
                       "everything again, or give what is new as a separate file",
                       path.string(), out.string());
    found.push_back(file);
  }
  if (num_there > 0) log::info("{} of {} files are in {} already", num_there, files.size(), out.string());
  return found;
}

}  // namespace

PrepareJob plan_addition(const PrepareOptions& options) {
  const auto& out = options.out;
  auto present = read_data_manifest(out);
  ATHANOR_CHECK_DATA(present.version >= 2,
                     "{} was prepared by an older version, which kept no remainder from which new files could "
                     "continue; prepare everything again",
                     out.string());
  auto tokenizer = Tokenizer::load(out / present.tokenizer_file);
  ATHANOR_CHECK_DATA(tokenizer.hash() == present.tokenizer_hash,
                     "{}: damaged: its checksum is not the manifest's; prepare the data again",
                     (out / present.tokenizer_file).string());
  check_options_agree(options, present, tokenizer);
  check_shards(out, present);
  auto documents = options.documents;
  if (!options.text_field_given) documents.text_field = present.text_field;
  documents.selection = selection_of(options, present);
  if (options.shard_bytes) present.shard_bytes = *options.shard_bytes;
  auto files = new_files(expand_inputs(options.inputs), present, out);
  auto first_tokens = read_remainder(out, present);
  auto hash = hash_file(out / kDataManifestName);
  return {std::move(tokenizer), std::move(documents),    std::move(present),
          std::move(files),     std::move(first_tokens), std::move(hash)};
}

}  // namespace athanor::inline preparation
