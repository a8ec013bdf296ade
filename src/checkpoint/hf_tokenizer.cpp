#include "checkpoint/hf_tokenizer.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kTokenizerModel = "tokenizer.model";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// Calls visit(id, text) for each token; added tokens come last.
template <class Visit>
void for_each_token(const Json& tokenizer, const std::string& where, Visit visit) {
  const auto& vocab = json_member(json_member(tokenizer, "model", where), "vocab", where);
  ATHANOR_CHECK_CHECKPOINT(vocab.is_object(), "{}: model.vocab must be an object", where);
  for (const auto& [text, id] : vocab.items()) {
    ATHANOR_CHECK_CHECKPOINT(id.is_number_integer(), "{}: the id of token \"{}\" must be a whole number", where, text);
    visit(id.template get<int64_t>(), text);
  }
  const auto added = tokenizer.find("added_tokens");
  if (added == tokenizer.end() || !added->is_array()) return;
  for (const auto& token : *added) visit(json_size(token, "id", where), json_string(token, "content", where));
}

std::string config_text(const Json& tokenizer, const std::string& where, const HfConfig& config) {
  Json json{{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"model_max_length", config.model.max_position_embeddings},
            {"clean_up_tokenization_spaces", false}};
  const auto name = [&](const char* key, const std::optional<int64_t>& wanted) {
    if (!wanted) return;
    for_each_token(tokenizer, where, [&](int64_t id, const std::string& text) {
      if (id == *wanted) json[key] = text;
    });
    ATHANOR_CHECK_CHECKPOINT(json.contains(key), "{}: has no token with id {}, the model's {}", where, *wanted, key);
  };
  name("bos_token", config.bos_token_id);
  name("eos_token", config.eos_token_id());
  name("pad_token", config.pad_token_id);
  return json.dump(2) + "\n";
}

void check_fits(const Json& tokenizer, const std::string& where, int64_t vocab_size) {
  for_each_token(tokenizer, where, [&](int64_t id, const std::string& text) {
    ATHANOR_CHECK_CHECKPOINT(id >= 0 && id < vocab_size,
                             "{}: token \"{}\" has id {}, beyond the model's vocab_size {}; this is the tokenizer of "
                             "another model",
                             where, text, id, vocab_size);
  });
}

std::string sentencepiece_config_text(const HfConfig& config) {
  const Json json{{"tokenizer_class", "LlamaTokenizer"},
                  {"model_max_length", config.model.max_position_embeddings},
                  {"add_bos_token", false},
                  {"add_eos_token", false},
                  {"clean_up_tokenization_spaces", false}};
  return json.dump(2) + "\n";
}

}  // namespace

fs::path find_tokenizer_file(const fs::path& folder) {
  for (const char* name : {kTokenizerJson, kTokenizerModel}) {
    if (fs::is_regular_file(folder / name)) return folder / name;
  }
  return {};
}

std::string tokenizer_file_name(const fs::path& tokenizer) {
  return tokenizer.extension() == ".model" ? kTokenizerModel : kTokenizerJson;
}

void copy_tokenizer_settings(const fs::path& from_folder, const fs::path& to_folder) {
  for (const char* name : {kTokenizerConfig, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}) {
    if (fs::is_regular_file(from_folder / name)) write_file_atomically(to_folder / name, read_file(from_folder / name));
  }
}

void write_hf_tokenizer(const fs::path& folder, const fs::path& tokenizer, const HfConfig& config) {
  const auto where = tokenizer.string();
  const auto text = read_file(tokenizer);
  const auto name = tokenizer_file_name(tokenizer);
  std::string settings;
  if (name == kTokenizerModel) {
    settings = sentencepiece_config_text(config);
  } else {
    const auto json = parse_strict_json(text, where);
    check_fits(json, where, config.model.vocab_size);
    const bool has_settings = fs::exists(tokenizer.parent_path() / kTokenizerConfig);
    if (!has_settings) settings = config_text(json, where, config);
  }
  write_file_atomically(folder / name, text);
  copy_tokenizer_settings(tokenizer.parent_path(), folder);
  if (!fs::exists(folder / kTokenizerConfig)) write_file_atomically(folder / kTokenizerConfig, settings);
}

}  // namespace athanor::inline checkpoint
