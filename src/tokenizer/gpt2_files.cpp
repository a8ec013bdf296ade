#include "tokenizer/gpt2_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/json_node.h"
#include "base/text.h"
#include "tokenizer/bpe_writer.h"
#include "tokenizer/file_limits.h"

namespace athanor::inline tokenizer {
namespace {

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

}  // namespace

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

}  // namespace athanor::inline tokenizer
