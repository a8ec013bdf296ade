// Encodes any text with tokenizers of every shape: there is no crash and no hang, and the fast forms give the ids of
// the plain form.
//
// The first byte chooses the tokenizer, the rest is the text; invalid UTF-8 in it is replaced first.

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "tokenizer/known_patterns.h"
#include "tokenizer/testing/tokenizer_json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

using nlohmann::json;

json byte_words(json pre_tokenizer, json normalizer = nullptr) {
  auto file = byte_tokenizer_json({"Ġthe", "the", "ing", "ĠĠĠĠ", "123", "æĹ", "ĊĊ", "aaaaaaaa"});
  file["pre_tokenizer"] = std::move(pre_tokenizer);
  file["normalizer"] = std::move(normalizer);
  const auto next_id = static_cast<uint32_t>(file["model"]["vocab"].size());
  file["added_tokens"] = json::array({added_token_json(next_id, "<|x|>")});
  return file;
}

json split(std::string_view regex) {
  const json rule = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {rule, bytes}}};
}

// Characters with byte fallback, as Llama-2 has them.
json character_words(json pre_tokenizer, bool byte_fallback, bool spaces_in_words) {
  json vocab, merges = json::array();
  const auto add = [&](const std::string& token) {
    if (!vocab.contains(token)) vocab[token] = vocab.size();
  };
  add("<unk>");
  for (int byte = 0; byte < 256 && byte_fallback; ++byte) add(fmt::format("<0x{:02X}>", byte));
  for (const auto* token : {"▁", "t", "h", "e", "a", "i", "n", "g", "é", "漢", "字", "1", "2"}) add(token);
  std::vector<std::array<std::string, 2>> pairs{{"t", "h"}, {"th", "e"}, {"▁", "the"}, {"▁", "▁"},   {"▁▁", "▁▁"},
                                                {"i", "n"}, {"in", "g"}, {"a", "a"},   {"aa", "aa"}, {"漢", "字"}};
  if (spaces_in_words) pairs.push_back({"the", "▁"});
  for (const auto& [left, right] : pairs) {
    add(left + right);
    merges.push_back(left + " " + right);
  }
  json model = {{"type", "BPE"},    {"vocab", vocab},      {"merges", merges}, {"byte_fallback", byte_fallback},
                {"fuse_unk", true}, {"unk_token", "<unk>"}};
  const json marks = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, marks}}}},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"model", std::move(model)}};
}

struct Pair {
  Tokenizer fast, plain;
};

const std::vector<Pair>& tokenizers() {
  static const auto all = [] {
    std::vector<json> files;
    const json gpt2 = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
    files.push_back(byte_words(gpt2));
    files.push_back(byte_words(gpt2, {{"type", "NFC"}}));
    files.push_back(byte_words(gpt2, {{"type", "NFKD"}}));
    for (const auto& known : known_patterns()) files.push_back(byte_words(split(known.pattern)));
    files.push_back(character_words(nullptr, true, false));
    files.push_back(character_words(nullptr, true, true));
    files.push_back(character_words(nullptr, false, false));
    files.push_back(
        character_words({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}}, true, false));
    files.push_back(character_words({{"type", "BertPreTokenizer"}}, true, false));
    std::vector<Pair> pairs;
    for (const auto& file : files) {
      const auto text = file.dump();
      pairs.push_back({Tokenizer::parse(text, "fuzz"), Tokenizer::parse(text, "fuzz", true)});
    }
    return pairs;
  }();
  return all;
}

std::optional<std::vector<uint32_t>> ids_or_refusal(const Tokenizer& tokenizer, std::string_view text) {
  try {
    return tokenizer.encode(text);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

}  // namespace
}  // namespace athanor::inline tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string text;
  athanor::append_utf8_lossy(text, std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  const auto& all = athanor::tokenizers();
  const auto& [fast, plain] = all[data[0] % all.size()];
  const auto ids = athanor::ids_or_refusal(fast, text);
  // The plain form takes time with the square of a word's length.
  constexpr size_t kMostForPlain = 8192;
  const auto expected = text.size() <= kMostForPlain ? athanor::ids_or_refusal(plain, text) : std::nullopt;
  if (expected) ATHANOR_ASSERT(ids == expected);  // the engine may give up on texts that the fast forms can encode
  if (!ids) return 0;
  athanor::StreamDecoder decoder(fast);
  std::string streamed;
  for (const uint32_t id : *ids) streamed += decoder.push(id);
  ATHANOR_ASSERT(streamed + decoder.finish() == fast.decode(*ids));
  return 0;
}
