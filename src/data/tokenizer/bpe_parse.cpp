// How the "model" of a tokenizer.json is read and checked.

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/byte_level.h"

namespace athanor {
namespace {

// Ids index tables: a file may leave this many of them unused, so that a wrong one costs an error and not the memory.
constexpr size_t kMaxUnusedIds = 1'000'000;

// Bytes that no UTF-8 text contains; vocabularies trained on text lack them.
bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

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

}  // namespace

Bpe Bpe::parse(const JsonNode& node) {
  const auto type = node.string_or("type", "BPE");
  if (type != "BPE") node.at("type").complain("the model \"{}\" is not supported; BPE is", type);
  Bpe bpe;
  bpe.parse_vocab(node.at("vocab"));
  bpe.parse_merges(node.at("merges"));
  bpe.parse_options(node);
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
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(token, code_point_of_byte(static_cast<uint8_t>(byte)));
    byte_ids_[byte] = token_to_id(token).value_or(kNoToken);
  }
}

void Bpe::parse_merges(const JsonNode& node) {
  node.must_be_array();
  const auto& merges = node.value();
  merges_ = MergeTable(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const auto id_of = [&](std::string_view token) {
      const auto id = token_to_id(token);
      if (!id) node.element(merges[i], i).complain("\"{}\" is not in model.vocab", token);
      return *id;
    };
    const auto [left, right] = split_merge(merges, i, node);
    joined.assign(left).append(right);
    const uint32_t left_id = id_of(left), right_id = id_of(right);
    merges_.set(left_id, right_id, {static_cast<uint32_t>(i), id_of(joined)});
  }
}

void Bpe::parse_options(const JsonNode& node) {
  if (const auto dropout = node.find("dropout"); dropout && dropout->value() != 0) {
    dropout->complain("dropout makes ids random and is not supported; set it to null");
  }
  for (const auto* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!node.string_or(key, "").empty()) node.at(key).complain("is not supported; expected null");
  }
  bool all_bytes = true;
  for (int byte = 0; byte < 256; ++byte) all_bytes &= byte_ids_[byte] != kNoToken || !occurs_in_utf8(byte);
  if (node.bool_or("byte_fallback", false) && !all_bytes) {
    node.at("byte_fallback").complain("is not supported where the vocabulary lacks bytes");
  }
  fuse_unknown_ = node.bool_or("fuse_unk", false);
  if (const auto unknown = node.find("unk_token")) {
    const auto id = token_to_id(unknown->as_string());
    if (!id) unknown->complain("\"{}\" is not in model.vocab", unknown->as_string());
    unknown_ = *id;
  }
  ignore_merges_ = node.bool_or("ignore_merges", false);
  if (!ignore_merges_) return;
  for (const auto& [token, id] : ids_) {
    if (auto bytes = bytes_from_alphabet(token)) whole_words_.emplace(std::move(*bytes), id);
  }
}

}  // namespace athanor
