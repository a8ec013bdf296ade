// Reads and checks the "model" of a tokenizer.json.

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

// Ids index tables. A file may leave this many of them unused, so that a wrong id causes an error and does not exhaust
// the memory.
constexpr size_t kMaxUnusedIds = 1'000'000;

struct Pair {
  std::string_view left, right;
};

Pair split_merge(const nlohmann::json& merges, size_t index, const JsonNode& node) {
  const auto& merge = merges[index];
  if (merge.is_array()) {
    const auto parts = node.element(merge, index).elements();
    if (parts.size() != 2) node.element(merge, index).complain("expected two tokens, found {}", parts.size());
    return {parts[0].as_string(), parts[1].as_string()};
  }
  const std::string_view text =
      merge.is_string() ? merge.get_ref<const std::string&>() : node.element(merge, index).as_string();
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) {
    node.element(merge, index).complain("expected two tokens with one space between them, found \"{}\"", text);
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

uint32_t last_code_point(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return decode_utf8(&text[begin]).code_point;
}

}  // namespace

Bpe Bpe::parse(const JsonNode& node, WordKind words, bool plain) {
  const auto type = node.string_or("type", "BPE");
  if (type != "BPE") node.at("type").complain("the model \"{}\" is not supported; BPE is", type);
  Bpe bpe;
  if (const auto dropout = node.find("dropout"); dropout && dropout->value() != 0) {
    dropout->complain("dropout makes ids random and is not supported; set it to null");
  }
  bpe.plain_ = plain;
  bpe.parse_vocab(node.at("vocab"));
  bpe.parse_symbols(node, words);
  bpe.parse_merges(node, words);
  bpe.parse_whole_words(node, words);
  return bpe;
}

void Bpe::parse_vocab(const JsonNode& node) {
  node.must_be_object();
  const size_t limit = node.value().size() + kMaxUnusedIds;
  std::vector<bool> taken;
  for (const auto& [token, value] : node.value().items()) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= limit) node.member(value, token).as_unsigned(limit);
    const auto id = value.get<uint32_t>();
    if (id >= tokens_.size()) {
      tokens_.resize(id + 1);
      taken.resize(id + 1);
    }
    if (taken[id]) node.member(value, token).complain("the id {} is \"{}\" already", id, tokens_[id]);
    taken[id] = true;
    tokens_[id] = token;
  }
  ids_.reserve(node.value().size());
  for (uint32_t id = 0; id < tokens_.size(); ++id) {
    if (taken[id]) ids_.emplace(tokens_[id], id);
  }
}

void Bpe::parse_symbols(const JsonNode& node, WordKind words) {
  SymbolOptions options{.kind = words,
                        .prefix = node.string_or("continuing_subword_prefix", ""),
                        .suffix = node.string_or("end_of_word_suffix", ""),
                        .byte_fallback = node.bool_or("byte_fallback", false),
                        .unknown = std::nullopt,
                        .fuse_unknown = node.bool_or("fuse_unk", false)};
  if (const auto unknown = node.find("unk_token")) options.unknown = unknown->as_string();
  symbols_ = std::make_unique<const SymbolTable>(std::move(options), tokens_,
                                                 [this](std::string_view token) { return token_to_id(token); });
  if (symbols_->loses_text()) {
    log::warn("{}", node.located("the vocabulary lacks characters and has no unk_token: they are left out of every "
                                 "text, as `tokenizers` does"));
  }
}

void Bpe::parse_merges(const JsonNode& model, WordKind words) {
  const auto node = model.at("merges");
  node.must_be_array();
  const auto& merges = node.value();
  const auto prefix = model.string_or("continuing_subword_prefix", "");
  merges_ = MergeTable(merges.size());
  std::string joined;
  std::vector<CutPoints::Border> borders;
  bool bytes_merge = false;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const auto id_of = [&](std::string_view token) {
      const auto id = token_to_id(token);
      if (!id) node.element(merges[i], i).complain("\"{}\" is not in model.vocab", token);
      return *id;
    };
    const auto [left, right] = split_merge(merges, i, node);
    const uint32_t left_id = id_of(left), right_id = id_of(right);
    if (right.size() < prefix.size()) {
      node.element(merges[i], i).complain("\"{}\" lacks the continuing_subword_prefix \"{}\"", right, prefix);
    }
    joined.assign(left).append(right.substr(prefix.size()));
    merges_.set(left_id, right_id, {static_cast<uint32_t>(i), id_of(joined)});
    if (words != WordKind::kCharacters || left.empty() || right.empty()) continue;
    borders.push_back({last_code_point(left), decode_utf8(right.data()).code_point});
    bytes_merge |= left.starts_with("<0x") || right.starts_with("<0x");
  }
  const bool may_cut = words == WordKind::kCharacters && !symbols_->has_affixes() && !plain_;
  if (may_cut) cuts_ = CutPoints(*symbols_, borders, bytes_merge);
}

void Bpe::parse_whole_words(const JsonNode& node, WordKind words) {
  ignore_merges_ = node.bool_or("ignore_merges", false);
  if (!ignore_merges_) return;
  cuts_ = CutPoints();  // a whole word may be a token
  for (const auto& [token, id] : ids_) {
    if (words == WordKind::kCharacters) {
      whole_words_.emplace(token, id);
    } else if (auto bytes = bytes_from_alphabet(token)) {
      whole_words_.emplace(std::move(*bytes), id);
    }
  }
}

}  // namespace athanor::inline tokenizer
