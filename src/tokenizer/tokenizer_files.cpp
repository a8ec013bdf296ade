#include "tokenizer/tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bounded_json.h"
#include "base/content_kind.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_node.h"
#include "base/text.h"
#include "tokenizer/bpe_writer.h"
#include "tokenizer/file_limits.h"

namespace athanor::inline tokenizer {
namespace fs = std::filesystem;

namespace {

// Converts GPT-2's older form of a byte-level BPE tokenizer to the equivalent tokenizer.json. It is a vocabulary
// (vocab.json or encoder.json) with the merges next to it (merges.txt or vocab.bpe).

constexpr const char* kEndOfText = "<|endoftext|>";

std::string merges_array(std::string_view text, const std::string& name) {
  if (const auto bad = find_invalid_utf8(text)) {
    fail<DataError>("{}: byte {} (0x{:02X}) is not UTF-8; get the file again", name, *bad,
                    static_cast<unsigned char>(text[*bad]));
  }
  std::string array = "[";
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    ATHANOR_CHECK_DATA(space != 0 && space + 1 < line.size() && line.find(' ', space + 1) == line.npos,
                       "{}:{}: expected two tokens with one space between them, found \"{}\"", name, line_number,
                       printable(line.substr(0, 80)));
    array += (array.size() > 1 ? ",\n      " : "\n      ") + nlohmann::json(line).dump();
  }
  return array + "\n    ]";
}

// Returns a tokenizer.json with GPT-2's words and bytes, no normalizer, and <|endoftext|> as a special token if the
// vocabulary has it. `merges` has two tokens per line; "#version" lines, blank lines and the carriage returns of
// Windows are ignored.
// @throws DataError naming the file with the byte or the line.
std::string json_of_gpt2_files(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name) {
  const auto document = parse_json(vocab, vocab_name);
  const JsonNode node(document, vocab_name);
  node.must_be_object();
  std::vector<std::pair<uint32_t, std::string>> special_tokens;
  if (const auto end = node.find(kEndOfText)) {
    special_tokens.emplace_back(static_cast<uint32_t>(end->as_unsigned(kMaxTokenId)), kEndOfText);
  }
  return gpt2_kind_of_json(special_tokens, std::string(vocab), merges_array(merges, merges_name));
}

// Returns the path of the merges of a GPT-2 vocabulary; empty if `vocab` does not have the name of such a file.
fs::path merges_beside(const fs::path& vocab) {
  constexpr std::string_view kVocab = "vocab.json";
  auto name = vocab.filename().string();
  if (name == "encoder.json") return vocab.parent_path() / "vocab.bpe";
  if (!name.ends_with(kVocab)) return {};
  return vocab.parent_path() / name.replace(name.size() - kVocab.size(), kVocab.size(), "merges.txt");
}

// Lines "IQ== 0": the bytes of a token in base64, and its rank. Llama 3's tokenizer.model is such a file.
bool is_tiktoken(std::string_view bytes) {
  const auto line = bytes.substr(0, bytes.find('\n'));
  const size_t space = std::min(line.find(' '), line.size());
  const auto token = line.substr(0, space);
  const auto rank = line.substr(std::min(space + 1, line.size()));
  const size_t length = std::min(
      token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"), token.size());
  return length > 0 && token.size() % 4 == 0 && token.find_first_not_of('=', length) == token.npos &&
         token.size() - length <= 2 && !rank.empty() && rank.find_first_not_of("0123456789\r") == rank.npos;
}

std::string read_tokenizer_file(const fs::path& file) {
  auto bytes = read_file(file);
  const auto kind = recognise_content(std::string_view(bytes).substr(0, kContentBytes));
  ATHANOR_CHECK_DATA(kind == ContentKind::kUnknown, "{} is {}", file.string(), describe_content(kind));
  ATHANOR_CHECK_DATA(!is_tiktoken(bytes),
                     "{} is a vocabulary of tiktoken, which is not read here; name the model's tokenizer.json, which "
                     "transformers reads too",
                     file.string());
  return bytes;
}

std::shared_ptr<const TokenizerBackend> load_gpt2(const fs::path& vocab, const fs::path& merges,
                                                  const CompanionFiles& companions) {
  ATHANOR_CHECK_DATA(fs::is_regular_file(merges),
                     "{}: a GPT-2 vocabulary needs its merges in the same folder: no file {}", vocab.string(),
                     merges.string());
  const auto json =
      json_of_gpt2_files(read_tokenizer_file(vocab), vocab.string(), read_tokenizer_file(merges), merges.string());
  return make_json_tokenizer(json, vocab.string() + " with " + merges.filename().string(), false, companions);
}

std::shared_ptr<const TokenizerBackend> load_backend(const fs::path& file, const CompanionFiles& companions) {
  if (file.extension() == ".model")
    return make_sentencepiece_tokenizer(read_tokenizer_file(file), file.string(), companions);
  if (const auto merges = merges_beside(file); !merges.empty()) return load_gpt2(file, merges, companions);
  const auto name = file.filename().string();
  ATHANOR_CHECK_DATA(
      !name.ends_with("merges.txt") && name != "vocab.bpe",
      "{}: this file has only merges; name the vocabulary in the same folder (vocab.json or encoder.json)",
      file.string());
  return make_json_tokenizer(read_tokenizer_file(file), file.string(), false, companions);
}

LoadedTokenizer load_file(const fs::path& file, bool with_companions) {
  CompanionFiles companions;
  if (with_companions) companions = read_companion_files(file.parent_path());
  auto backend = load_backend(file, companions);
  return {std::move(backend), std::move(companions), file.string()};
}

bool has_usual_name(const fs::path& file) {
  const auto name = file.filename();
  return name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json";
}

// Returns the one file of `folder` that `fits`; none if there is none.
template <class Fits>
fs::path only_file(const fs::path& folder, Fits fits) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && fits(entry.path())) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  ATHANOR_CHECK_DATA(names.size() < 2, "{} holds several tokenizers: {}; name one of them", folder.string(),
                     join(names));
  return names.empty() ? fs::path() : folder / names.front();
}

}  // namespace

fs::path find_tokenizer(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::is_regular_file(folder / name)) return folder / name;
  }
  auto file = only_file(folder, [](const fs::path& path) { return path.extension() == ".model"; });
  if (file.empty()) file = only_file(folder, [](const fs::path& path) { return !merges_beside(path).empty(); });
  return file;
}

LoadedTokenizer load_tokenizer_files(const fs::path& path) {
  if (fs::is_directory(path)) {
    const fs::path file = find_tokenizer(path);
    ATHANOR_CHECK_DATA(
        !file.empty(),
        "{} holds no tokenizer: no tokenizer.json, no .model, no vocab.json; name one of these, or their folder",
        path.string());
    return load_file(file, true);
  }
  ATHANOR_CHECK_DATA(fs::is_regular_file(path), "{}: no such file; name a tokenizer.json, a .model or a vocab.json",
                     path.string());
  return load_file(path, has_usual_name(path));
}

}  // namespace athanor::inline tokenizer
