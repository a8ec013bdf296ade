#include "tokenizer/companion_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_node.h"
#include "tokenizer/file_limits.h"

namespace athanor::inline tokenizer {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr const char* kExtraTokens[] = {"extra_special_tokens", "additional_special_tokens"};

/// A companion file; an absent one is an empty object.
struct File {
  File(const fs::path& folder, const char* file_name)
      : name((folder / file_name).string()),
        document(fs::is_regular_file(name) ? parse_json(read_file(name), name) : json::object()) {
    root().must_be_object();
  }
  JsonNode root() const { return JsonNode(document, name); }

  std::string name;
  json document;
};

// A token is its text, or an object with the text and the flags.
std::optional<CompanionToken> read_token(const JsonNode& node, const std::string& file) {
  CompanionToken token;
  token.file = file;
  if (node.is_string()) {
    token.content = node.as_string();
  } else if (node.value().is_object() && node.value().contains("content")) {
    token.content = node.at("content").as_string();
    token.single_word = node.bool_or("single_word", false);
    token.lstrip = node.bool_or("lstrip", false);
    token.rstrip = node.bool_or("rstrip", false);
    token.special = node.bool_or("special", false);
    token.normalized = node.bool_or("normalized", !token.special);
  }
  if (token.content.empty()) return std::nullopt;
  return token;
}

// The tokens that a file names, in the order in which they are added.
struct NamedTokens {
  std::vector<CompanionToken> tokens;
  std::map<std::string, std::string> roles;

  void take(const std::string& role, const JsonNode& node, const std::string& file) {
    auto token = read_token(node, file);
    if (!token || roles.contains(role)) return;
    token->special = true;
    roles[role] = token->content;
    tokens.push_back(std::move(*token));
  }

  void read_roles(const File& file) {
    for (const char* role : kRoles) {
      if (const auto node = file.root().find(role)) take(role, *node, file.name);
    }
  }

  // Roles of a model's own ("image_token"), and lists or objects of tokens.
  void read_others(const File& file) {
    for (const auto& [key, value] : file.document.items()) {
      if (key.ends_with("_token") && value.is_string()) take(key, file.root().member(value, key), file.name);
    }
    for (const char* key : kExtraTokens) {
      const auto extra = file.root().find(key);
      if (!extra) continue;
      for (const auto& [role, value] : extra->value().items()) {
        const auto node = extra->is_array() ? extra->element(value, std::stoul(role)) : extra->member(value, role);
        if (auto token = read_token(node, file.name)) {
          token->special = true;
          tokens.push_back(std::move(*token));
        }
      }
    }
  }

  bool names(const std::string& content) const {
    return std::ranges::any_of(tokens, [&](const CompanionToken& token) { return token.content == content; });
  }
};

uint32_t id_of_key(const JsonNode& node, const std::string& key) {
  const bool right = !key.empty() && key.size() <= 10 && key.find_first_not_of("0123456789") == std::string::npos &&
                     std::stoull(key) < kMaxTokenId;
  if (!right) node.complain("\"{}\" is not a token id", key);
  return static_cast<uint32_t>(std::stoull(key));
}

std::vector<CompanionToken> tokens_of_decoder(const JsonNode& decoder, const std::string& file) {
  decoder.must_be_object();
  std::vector<CompanionToken> tokens;
  for (const auto& [key, value] : decoder.value().items()) {
    const auto node = decoder.member(value, key);
    auto token = read_token(node, file);
    if (!token || node.is_string()) node.complain("expected an object with the token's content");
    token->id = id_of_key(decoder, key);
    token->replaces = true;
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

// {"<pad>": 32000}: a name is all that tells which of them are special.
std::vector<CompanionToken> tokens_of_added(const File& file, const NamedTokens& named) {
  std::vector<CompanionToken> tokens;
  for (const auto& [content, value] : file.document.items()) {
    CompanionToken token;
    token.content = content;
    token.file = file.name;
    token.id = static_cast<uint32_t>(file.root().member(value, content).as_unsigned(kMaxTokenId));
    token.special = named.names(content);
    token.normalized = !token.special;
    token.replaces = true;
    if (!content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

json token_json(const CompanionToken& token, uint32_t id) {
  return {{"id", id},
          {"content", token.content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

/// The added tokens of a tokenizer.json, with the rule by which a new one gets its id.
class AddedList {
 public:
  AddedList(json& list, const json& vocabulary)
      : list_(list), vocabulary_(vocabulary), next_(static_cast<uint32_t>(vocabulary.size())) {
    for (size_t i = 0; i < list.size(); ++i) {
      const json& token = list[i];
      if (!token.is_object() || !token.value("content", json()).is_string()) continue;
      places_[token["content"].get<std::string>()] = i;
      if (token.value("id", json()).is_number_unsigned()) note(token["id"].get<uint64_t>());
    }
  }

  bool add(const CompanionToken& token, const std::string& name) {
    const auto place = places_.find(token.content);
    const bool is_there = place != places_.end();
    const uint32_t id = is_there ? list_[place->second].value("id", uint32_t{0}) : next_id(token.content);
    ATHANOR_CHECK_DATA(!token.id || *token.id == id,
                       "{}: \"{}\" has the id {}, but in {} it is token {}; make them agree", token.file, token.content,
                       *token.id, name, id);
    if (is_there && (!token.replaces || list_[place->second] == token_json(token, id))) return false;
    note(id);
    if (is_there) {
      list_[place->second] = token_json(token, id);
    } else {
      places_[token.content] = list_.size();
      list_.push_back(token_json(token, id));
    }
    return true;
  }

 private:
  void note(uint64_t id) {
    if (id < kMaxTokenId) next_ = std::max(next_, static_cast<uint32_t>(id) + 1);
  }
  uint32_t next_id(const std::string& content) const {
    const auto found = vocabulary_.find(content);
    return found != vocabulary_.end() && found->is_number_unsigned() ? found->get<uint32_t>() : next_;
  }

  json& list_;
  const json& vocabulary_;
  std::map<std::string, size_t> places_;
  uint32_t next_;  // as `tokenizers` counts: from the number of tokens of the vocabulary on
};

}  // namespace

CompanionFiles read_companion_files(const fs::path& folder) {
  const File settings(folder, "tokenizer_config.json"), map(folder, "special_tokens_map.json");
  const auto decoder = settings.root().find("added_tokens_decoder");
  NamedTokens named, added_names;
  named.read_roles(settings);
  if (!decoder) named.read_roles(map);
  named.read_others(settings);
  if (!decoder) named.read_others(map);

  CompanionFiles companions;
  companions.tokens =
      decoder ? tokens_of_decoder(*decoder, settings.name) : tokens_of_added(File(folder, "added_tokens.json"), named);
  std::ranges::sort(companions.tokens, {}, [](const CompanionToken& token) { return *token.id; });
  std::set<std::string> listed;
  for (auto& token : companions.tokens) {
    token.special |= named.names(token.content);
    listed.insert(token.content);
  }
  for (auto& token : named.tokens) {
    if (listed.insert(token.content).second) companions.tokens.push_back(std::move(token));
  }
  companions.named = std::move(named.roles);
  if (decoder) {  // names alone add nothing
    added_names.read_roles(map);
    companions.named.merge(added_names.roles);
  }
  companions.add_bos = settings.root().bool_or("add_bos_token", false);
  companions.add_eos = settings.root().bool_or("add_eos_token", false);
  return companions;
}

bool add_companion_tokens(const CompanionFiles& companions, json& tokenizer, const std::string& name) {
  if (companions.tokens.empty() || !tokenizer.is_object()) return false;
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object()) return false;
  const auto vocabulary = model->find("vocab");
  if (vocabulary == model->end() || !vocabulary->is_object()) return false;
  json& list = tokenizer["added_tokens"];
  if (list.is_null()) list = json::array();
  if (!list.is_array()) return false;
  AddedList added(list, *vocabulary);
  bool changed = false;
  for (const auto& token : companions.tokens) changed |= added.add(token, name);
  const auto id_of = [](const json& token) { return token.is_object() ? token.value("id", uint64_t{0}) : 0; };
  if (changed) {
    std::stable_sort(list.begin(), list.end(), [&](const json& a, const json& b) { return id_of(a) < id_of(b); });
  }
  return changed;
}

}  // namespace athanor::inline tokenizer
