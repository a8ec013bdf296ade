#include "tokenizer/post_processor.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bounded_json.h"
#include "base/json_node.h"
#include "tokenizer/file_limits.h"

namespace athanor::inline tokenizer {
namespace {

uint32_t id_at(const JsonNode& node) { return static_cast<uint32_t>(node.as_unsigned(kMaxTokenId)); }

// Reads ["</s>", 2].
uint32_t id_of_pair(const JsonNode& node) {
  const auto parts = node.elements();
  if (parts.size() != 2) node.complain("expected a token and its id, found {} elements", parts.size());
  return id_at(parts[1]);
}

void append_ids(const JsonNode& special_tokens, const JsonNode& piece, std::vector<uint32_t>& ids) {
  const auto token = special_tokens.at(piece.at("id").as_string());
  for (const auto& id : token.at("ids").elements()) ids.push_back(id_at(id));
}

TextTemplate parse_template(const JsonNode& node) {
  TextTemplate result;
  const auto single = node.at("single");
  int num_sequences = 0;
  for (const auto& piece : single.elements()) {
    if (const auto special = piece.find("SpecialToken")) {
      append_ids(node.at("special_tokens"), *special, num_sequences == 0 ? result.before : result.after);
    } else {
      const auto id = piece.at("Sequence").at("id");
      if (id.as_string() != "A") id.complain("expected A, found {}", id.as_string());
      ++num_sequences;
    }
  }
  if (num_sequences != 1) single.complain("expected the sequence A once, found it {} times", num_sequences);
  return result;
}

// Puts the tokens that `node` specifies around those that `inner` already has.
void wrap(const JsonNode& node, int depth, TextTemplate& inner) {
  if (depth > kMaxNesting) node.complain("sequences are nested deeper than {}", kMaxNesting);
  const std::string type = node.at("type").as_string();
  TextTemplate outer;
  if (type == "Sequence") {
    for (const auto& part : node.at("processors").elements()) wrap(part, depth + 1, inner);
    return;
  }
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") {
    outer = parse_template(node);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    outer = {{id_of_pair(node.at("cls"))}, {id_of_pair(node.at("sep"))}};
  } else {
    node.at("type").complain(
        "the post-processor \"{}\" is not supported; TemplateProcessing, RobertaProcessing, "
        "BertProcessing, ByteLevel, Sequence and null are",
        type);
  }
  inner.before.insert(inner.before.begin(), outer.before.begin(), outer.before.end());
  inner.after.insert(inner.after.end(), outer.after.begin(), outer.after.end());
}

}  // namespace

TextTemplate read_text_template(std::string_view tokenizer_json, const std::string& name_for_errors) {
  const auto document = parse_json(tokenizer_json, name_for_errors);
  TextTemplate result;
  const auto node = JsonNode(document, name_for_errors).find("post_processor");
  if (node) wrap(*node, 0, result);
  return result;
}

}  // namespace athanor::inline tokenizer
