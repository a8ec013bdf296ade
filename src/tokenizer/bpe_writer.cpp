#include "tokenizer/bpe_writer.h"

#include <nlohmann/json.hpp>

namespace athanor::inline tokenizer {

using Json = nlohmann::ordered_json;

std::string tokenizer_json(const BpeVocabulary& vocabulary) {
  std::vector<std::pair<uint32_t, std::string>> special_tokens;
  for (const auto& token : vocabulary.special_tokens) special_tokens.emplace_back(special_tokens.size(), token);
  // An ordered object searches all earlier keys for each new key, so the two long parts are written separately.
  std::string vocab = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocab += (id ? ",\n      " : "\n      ") + Json(vocabulary.tokens[id]).dump() + ": " + std::to_string(id);
  }
  vocab += "\n    }";
  std::string merges = "[";
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto [left, right] = vocabulary.merges[rank];
    merges += (rank ? ",\n      " : "\n      ") + Json(vocabulary.tokens[left] + " " + vocabulary.tokens[right]).dump();
  }
  merges += "\n    ]";
  return gpt2_kind_of_json(special_tokens, vocab, merges);
}

std::string gpt2_kind_of_json(const std::vector<std::pair<uint32_t, std::string>>& special_tokens,
                              const std::string& vocab, const std::string& merges) {
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json added = Json::array();
  for (const auto& [id, content] : special_tokens) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json before = {
      {"version", "1.0"},      {"truncation", nullptr},       {"padding", nullptr},           {"added_tokens", added},
      {"normalizer", nullptr}, {"pre_tokenizer", byte_level}, {"post_processor", byte_level}, {"decoder", byte_level}};
  const Json options = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false}};
  std::string text = before.dump(2);
  text.erase(text.rfind("\n}"));
  std::string model = options.dump(2);
  model.erase(model.rfind("\n}"));
  for (size_t at = 0; (at = model.find('\n', at)) != std::string::npos; at += 3) model.insert(at + 1, "  ");
  return text + ",\n  \"model\": " + model + ",\n    \"vocab\": " + vocab + ",\n    \"merges\": " + merges +
         "\n  }\n}\n";
}

}  // namespace athanor::inline tokenizer
