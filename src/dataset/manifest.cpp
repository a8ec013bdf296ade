#include "dataset/manifest.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_node.h"
#include "base/shell_words.h"
#include "base/text_template_json.h"
#include "dataset/prepared_folder.h"

namespace athanor::inline dataset {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMaxCount = uint64_t{1} << 62;
constexpr int64_t kMaxSeqLen = int64_t{1} << 30;

int64_t count_at(const JsonNode& object, const std::string& key) {
  return static_cast<int64_t>(object.at(key).as_unsigned(kMaxCount));
}

// Returns a file name inside the folder: a manifest from elsewhere must not reach outside.
std::string file_at(const JsonNode& object, const std::string& key) {
  const auto node = object.at(key);
  const auto& name = node.as_string();
  if (name.empty() || name.starts_with('.') || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
    node.complain("{:.64} is not the name of a file in this folder", name);
  }
  return name;
}

SplitEntry parse_split(const JsonNode& node, int64_t seq_len) {
  SplitEntry split;
  split.instances = count_at(node, "instances");
  split.tokens = count_at(node, "tokens");
  int64_t in_files = 0;
  for (const auto& file : node.at("files").elements()) {
    split.files.push_back({file_at(file, "file"), count_at(file, "instances"), file.at("hash").as_string()});
    in_files += split.files.back().instances;
    if (in_files > split.instances) break;
  }
  if (in_files != split.instances) {
    node.complain("{} instances, but its files have another number ({})", split.instances, in_files);
  }
  int64_t tokens = 0;
  if (__builtin_mul_overflow(split.instances, seq_len, &tokens) || tokens != split.tokens) {
    node.complain("{} instances of {} tokens are not {} tokens", split.instances, seq_len, split.tokens);
  }
  return split;
}

void parse_counts(const JsonNode& root, DataManifest& manifest) {
  manifest.documents = count_at(root, "documents");
  manifest.tokens = count_at(root, "tokens");
  manifest.remainder_tokens = count_at(root, "remainder_tokens");
  manifest.text_bytes = count_at(root, "text_bytes");
  const auto skipped = root.at("skipped");
  skipped.must_be_object();
  for (const auto& [cause, count] : skipped.value().items()) {
    manifest.skipped[cause] = static_cast<int64_t>(skipped.member(count, cause).as_unsigned(kMaxCount));
  }
  for (const auto& input : root.at("inputs").elements()) {
    manifest.inputs.push_back(
        {input.at("path").as_string(), count_at(input, "documents"), count_at(input, "tokens"), -1, ""});
    if (const auto bytes = input.find("bytes"))
      manifest.inputs.back().bytes = static_cast<int64_t>(bytes->as_unsigned(kMaxCount));
    manifest.inputs.back().fingerprint = input.string_or("fingerprint", "");
  }
}

PartEntry parse_part(const JsonNode& node) {
  PartEntry part{count_at(node, "inputs"),
                 count_at(node, "documents"),
                 count_at(node, "tokens"),
                 count_at(node, "text_bytes"),
                 {},
                 "",
                 "",
                 {}};
  const auto instances = node.at("instances");
  instances.must_be_object();
  for (const auto& [split, count] : instances.value().items()) {
    part.instances[split] = static_cast<int64_t>(instances.member(count, split).as_unsigned(kMaxCount));
  }
  if (const auto program = node.find("athanor")) {
    part.version = program->string_or("version", "");
    part.commit = program->string_or("commit", "");
  }
  if (const auto blocks = node.find("checksums")) {
    part.checksums = {file_at(*blocks, "file"), blocks->at("hash").as_string(), count_at(*blocks, "block_rows")};
    if (part.checksums->block_rows == 0) blocks->at("block_rows").complain("must be at least 1");
  }
  return part;
}

// The sum cannot overflow, since each count is below 2^62 and a contradiction ends the loop.
void check_sum(const JsonNode& root, const std::string& what, int64_t total, const std::vector<PartEntry>& parts,
               const std::function<int64_t(const PartEntry&)>& of) {
  int64_t sum = 0;
  for (const auto& part : parts) {
    sum += of(part);
    if (sum > total) break;
  }
  if (sum != total) root.at("parts").complain("have other {} together than the folder ({}, {})", what, sum, total);
}

void parse_parts(const JsonNode& root, DataManifest& manifest) {
  for (const auto& part : root.at("parts").elements()) manifest.parts.push_back(parse_part(part));
  const auto& parts = manifest.parts;
  if (parts.empty()) root.at("parts").complain("must not be empty");
  check_sum(root, "inputs", static_cast<int64_t>(manifest.inputs.size()), parts,
            [](const auto& p) { return p.inputs; });
  check_sum(root, "documents", manifest.documents, parts, [](const auto& p) { return p.documents; });
  check_sum(root, "tokens", manifest.tokens, parts, [](const auto& p) { return p.tokens; });
  check_sum(root, "text_bytes", manifest.text_bytes, parts, [](const auto& p) { return p.text_bytes; });
  int64_t tokens = manifest.remainder_tokens;
  for (const auto& [name, split] : manifest.splits) {
    check_sum(root, "instances of " + name, split.instances, parts, [&of = name](const PartEntry& part) {
      const auto found = part.instances.find(of);
      return found == part.instances.end() ? 0 : found->second;
    });
    if (__builtin_add_overflow(tokens, split.tokens, &tokens)) break;
  }
  if (tokens != manifest.tokens) {
    root.at("tokens").complain("{} is not what the splits and the remainder have together ({})", manifest.tokens,
                               tokens);
  }
}

std::vector<std::string> strings_at(const JsonNode& object, const std::string& key) {
  std::vector<std::string> strings;
  for (const auto& element : object.at(key).elements()) strings.push_back(element.as_string());
  return strings;
}

void parse_version_2(const JsonNode& root, DataManifest& manifest) {
  parse_parts(root, manifest);
  if (manifest.remainder_tokens >= manifest.seq_len) {
    root.at("remainder_tokens")
        .complain("{} would make an instance of {}", manifest.remainder_tokens, manifest.seq_len);
  }
  if (manifest.remainder_tokens > 0) {
    const auto remainder = root.at("remainder");
    manifest.remainder = RemainderEntry{file_at(remainder, "file"), remainder.at("hash").as_string()};
  }
  const auto fraction = root.at("validation_fraction");
  if (!fraction.value().is_number()) fraction.complain("must be a number");
  manifest.validation_fraction = fraction.value().get<double>();
  if (!(manifest.validation_fraction >= 0 && manifest.validation_fraction < 1)) fraction.complain("must be in [0, 1)");
  manifest.text_field = root.at("text_field").as_string();
  manifest.shard_bytes = root.at("shard_bytes").as_unsigned(UINT64_MAX);
  if (const auto selection = root.find("selection")) {
    manifest.selection = {strings_at(*selection, "attributes"), strings_at(*selection, "keep"),
                          strings_at(*selection, "drop")};
  }
  if (const auto node = root.find(kTextTemplateKey)) {
    const auto around = parse_text_template(node->value());
    if (!around) node->complain("expected the token ids before and after a document");
    for (const auto& ids : {around->before, around->after}) {
      if (std::ranges::any_of(ids, [&](uint32_t id) { return id >= manifest.vocab_size; }))
        node->complain("has a token beyond the vocabulary of {}", manifest.vocab_size);
    }
    manifest.text_template = *around;
  }
  manifest.split_special_tokens = root.bool_or("split_special_tokens", false);
  if (root.find("special_token_documents"))
    manifest.special_token_documents = count_at(root, "special_token_documents");
}

PartEntry only_part(const DataManifest& manifest) {
  PartEntry part{static_cast<int64_t>(manifest.inputs.size()),
                 manifest.documents,
                 manifest.tokens,
                 manifest.text_bytes,
                 {},
                 "",
                 "",
                 {}};
  for (const auto& [name, split] : manifest.splits) part.instances[name] = split.instances;
  return part;
}

DataManifest parse_root(const JsonNode& root) {
  root.must_be_object();
  if (root.string_or("format", "") != kDataFormatName) root.at("format").complain("must be {}", kDataFormatName);
  const auto version = root.at("version").as_unsigned(kMaxCount);
  if (version < 1 || version > static_cast<uint64_t>(kDataFormatVersion)) {
    root.at("version").complain("{} is unknown, this program knows 1 to {}; prepare the data again", version,
                                kDataFormatVersion);
  }
  DataManifest manifest;
  manifest.version = static_cast<int64_t>(version);
  manifest.tokenizer_file = file_at(root, "tokenizer_file");
  manifest.tokenizer_hash = root.at("tokenizer_hash").as_string();
  manifest.vocab_size = static_cast<uint32_t>(root.at("vocab_size").as_unsigned(uint64_t{1} << 31));
  manifest.eos_id = static_cast<uint32_t>(root.at("eos_id").as_unsigned(uint64_t{1} << 31));
  if (manifest.eos_id >= manifest.vocab_size) {
    root.at("eos_id").complain("{} is beyond the vocabulary of {}", manifest.eos_id, manifest.vocab_size);
  }
  manifest.seq_len = count_at(root, "seq_len");
  if (manifest.seq_len < 2 || manifest.seq_len > kMaxSeqLen) {
    root.at("seq_len").complain("{} is not in [2, {}]", manifest.seq_len, kMaxSeqLen);
  }
  manifest.seed = root.at("seed").as_unsigned(UINT64_MAX);
  manifest.dtype = root.at("dtype").as_string();
  if (manifest.dtype != "uint16" && manifest.dtype != "uint32") root.at("dtype").complain("must be uint16 or uint32");
  const auto splits = root.at("splits");
  splits.must_be_object();
  for (const auto& [name, split] : splits.value().items()) {
    manifest.splits[name] = parse_split(splits.member(split, name), manifest.seq_len);
  }
  parse_counts(root, manifest);
  if (version >= 2) {
    parse_version_2(root, manifest);
  } else {
    manifest.parts = {only_part(manifest)};
  }
  return manifest;
}

void add_version_2(const DataManifest& manifest, ordered_json& root) {
  ordered_json parts = ordered_json::array();
  for (const auto& part : manifest.parts) {
    parts.push_back({{"inputs", part.inputs},
                     {"documents", part.documents},
                     {"tokens", part.tokens},
                     {"text_bytes", part.text_bytes},
                     {"instances", part.instances}});
    if (!part.version.empty()) parts.back()["athanor"] = {{"version", part.version}, {"commit", part.commit}};
    if (part.checksums) {
      const auto& [file, hash, block_rows] = *part.checksums;
      parts.back()["checksums"] = {{"file", file}, {"block_rows", block_rows}, {"hash", hash}};
    }
  }
  root["parts"] = parts;
  if (manifest.remainder) root["remainder"] = {{"file", manifest.remainder->file}, {"hash", manifest.remainder->hash}};
  root["validation_fraction"] = manifest.validation_fraction;
  root["text_field"] = manifest.text_field;
  root["shard_bytes"] = manifest.shard_bytes;
  const auto& selection = manifest.selection;
  if (!selection.empty()) {
    root["selection"] = {{"attributes", selection.attributes}, {"keep", selection.keep}, {"drop", selection.drop}};
  }
  if (!manifest.text_template.empty()) root[kTextTemplateKey] = text_template_json(manifest.text_template);
  if (manifest.split_special_tokens) root["split_special_tokens"] = true;
  if (manifest.special_token_documents > 0) root["special_token_documents"] = manifest.special_token_documents;
}

}  // namespace

std::string data_manifest_text(const DataManifest& manifest) {
  ordered_json splits = ordered_json::object();
  for (const auto& [name, split] : manifest.splits) {
    ordered_json files = ordered_json::array();
    for (const auto& shard : split.files) {
      files.push_back({{"file", shard.file}, {"instances", shard.instances}, {"hash", shard.hash}});
    }
    splits[name] = {{"instances", split.instances}, {"tokens", split.tokens}, {"files", files}};
  }
  ordered_json skipped = ordered_json::object(), inputs = ordered_json::array();
  for (const auto& [cause, count] : manifest.skipped) skipped[cause] = count;
  for (const auto& input : manifest.inputs) {
    inputs.push_back({{"path", input.path}, {"documents", input.documents}, {"tokens", input.tokens}});
    if (input.bytes >= 0) inputs.back()["bytes"] = input.bytes;
    if (!input.fingerprint.empty()) inputs.back()["fingerprint"] = input.fingerprint;
  }
  ordered_json root{{"format", kDataFormatName},
                    {"version", manifest.version},
                    {"tokenizer_file", manifest.tokenizer_file},
                    {"tokenizer_hash", manifest.tokenizer_hash},
                    {"vocab_size", manifest.vocab_size},
                    {"eos_id", manifest.eos_id},
                    {"seq_len", manifest.seq_len},
                    {"seed", manifest.seed},
                    {"dtype", manifest.dtype},
                    {"splits", splits},
                    {"documents", manifest.documents},
                    {"tokens", manifest.tokens},
                    {"remainder_tokens", manifest.remainder_tokens},
                    {"text_bytes", manifest.text_bytes},
                    {"skipped", skipped}};
  if (manifest.version >= 2) add_version_2(manifest, root);
  root["inputs"] = inputs;
  // A path need not be UTF-8; invalid bytes become U+FFFD, since the path is only information for people.
  return root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

DataManifest parse_data_manifest(std::string_view text, const std::string& name) {
  const auto json = parse_json(text, name);
  return parse_root(JsonNode(json, name));
}

std::string read_data_manifest_text(const std::filesystem::path& folder) {
  std::error_code error, ignored;
  const auto file = folder / kDataManifestName;
  ATHANOR_CHECK_DATA(std::filesystem::exists(folder, error) || error,
                     "{} does not exist; write it with `athanor prepare --out {}`", folder.string(),
                     shell_word(folder.string()));
  if (error) throw IoError("cannot open " + folder.string() + ": " + error.message(), error.value());
  ATHANOR_CHECK_DATA(std::filesystem::exists(file, ignored), "{} has no {}; name a folder that `athanor prepare` wrote",
                     folder.string(), kDataManifestName);
  return read_file(file);
}

DataManifest read_data_manifest(const std::filesystem::path& folder) {
  return parse_data_manifest(read_data_manifest_text(folder), (folder / kDataManifestName).string());
}

}  // namespace athanor::inline dataset
