#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "tokenizer/file_limits.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

AddedToken parse_token(const JsonNode& node) {
  AddedToken token;
  token.id = static_cast<uint32_t>(node.at("id").as_unsigned(kMaxTokenId));
  token.content = node.at("content").as_string();
  token.single_word = node.at("single_word").as_bool();
  token.lstrip = node.at("lstrip").as_bool();
  token.rstrip = node.at("rstrip").as_bool();
  token.normalized = node.at("normalized").as_bool();
  token.special = node.at("special").as_bool();
  return token;
}

std::vector<AddedToken> parse_tokens(const std::optional<JsonNode>& node, const Bpe& model,
                                     const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  if (!node) return tokens;
  RegexScratch regex;
  Normalizer::Scratch scratch;
  std::unordered_set<std::string> contents;
  auto next_id = static_cast<uint32_t>(model.num_tokens());
  for (const auto& element : node->elements()) {
    auto token = parse_token(element);
    if (token.content.empty()) continue;  // as `tokenizers` does
    if (!contents.insert(token.content).second) {
      element.at("content").complain("\"{}\" is there twice", token.content);
    }
    const auto in_model = model.token_to_id(token.content);
    // `tokenizers` does not read the id: it takes the vocabulary's, or the next free one.
    const uint32_t expected = in_model.value_or(next_id);
    if (token.id != expected) {
      element.at("id").complain("\"{}\" has the id {} here, but {} {}; make them agree", token.content, token.id,
                                in_model ? "model.vocab gives it" : "the next free one, which `tokenizers` uses, is",
                                expected);
    }
    next_id = std::max(next_id, token.id + 1);
    token.text = token.normalized ? normalizer.apply(token.content, regex, scratch) : token.content;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenFinder make_finder(const std::vector<AddedToken>& all, bool normalized, SpecialText special_text) {
  std::vector<AddedToken> tokens;
  // If two tokens have the same normalised text the first counts, and special tokens come first.
  for (const bool special : {true, false}) {
    if (special && special_text == SpecialText::kIsText) continue;
    for (const auto& token : all) {
      if (token.normalized != normalized || token.special != special) continue;
      if (token.text.empty()) continue;  // nothing is left after normalisation, so the token never occurs
      tokens.push_back(token);
    }
  }
  return TokenFinder(std::move(tokens));
}

std::string_view first_character(std::string_view text) {
  return text.empty() ? text : text.substr(0, decode_utf8(text.data()).num_bytes);
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0) == 0x80) {
  }
  return text.substr(begin);
}

bool is_space_character(std::string_view character) {
  return !character.empty() && is_space(decode_utf8(character.data()).code_point);
}

bool is_word(std::string_view character) {
  return !character.empty() && athanor::is_word(decode_utf8(character.data()).code_point);
}

// Returns the number of bytes of white space at the start of `text`.
size_t leading_space(std::string_view text) {
  size_t end = 0;
  for (auto c = first_character(text); is_space_character(c); c = first_character(text.substr(end))) end += c.size();
  return end;
}

// Returns the number of bytes of white space at the end of `text`.
size_t trailing_space(std::string_view text) {
  size_t begin = text.size();
  for (auto c = last_character(text); is_space_character(c); c = last_character(text.substr(0, begin)))
    begin -= c.size();
  return text.size() - begin;
}

}  // namespace

AddedTokens::AddedTokens(const std::optional<JsonNode>& node, const Bpe& model, const Normalizer& normalizer)
    : tokens_(parse_tokens(node, model, normalizer)), raw_(make_finder(tokens_, false, SpecialText::kIsToken)),
      normalized_(make_finder(tokens_, true, SpecialText::kIsToken)),
      plain_raw_(make_finder(tokens_, false, SpecialText::kIsText)),
      plain_normalized_(make_finder(tokens_, true, SpecialText::kIsText)) {}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), ends_(1, kNone) {
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const auto& pattern = tokens_[i].text;
    uint32_t node = 0;
    for (const char c : pattern) {
      const auto edge =
          edges_.try_emplace(uint64_t{node} * 256 + static_cast<unsigned char>(c), static_cast<uint32_t>(ends_.size()));
      if (edge.second) ends_.push_back(kNone);
      node = edge.first->second;
    }
    if (ends_[node] == kNone) ends_[node] = i;
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(pattern[at]); };
    first_bytes_[byte(0)] = true;
    for (size_t second = 0; second < 256; ++second) {
      if (pattern.size() == 1 || second == byte(1)) first_pairs_.set(byte(0) * size_t{256} + second);
    }
  }
}

size_t TokenFinder::next_candidate(std::string_view text, size_t from) const {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  for (size_t at = from; at + 1 < text.size(); ++at) {
    if (first_bytes_[byte(at)] && first_pairs_[byte(at) * size_t{256} + byte(at + 1)]) return at;
  }
  const size_t last = std::max(from, text.size() - 1);
  return last < text.size() && first_bytes_[byte(last)] ? last : text.size();
}

std::optional<TokenFinder::Hit> TokenFinder::next_hit(std::string_view text, size_t from) const {
  if (tokens_.empty() || text.empty()) return std::nullopt;
  for (size_t begin = next_candidate(text, from); begin < text.size(); begin = next_candidate(text, begin + 1)) {
    Hit longest{begin, begin, kNone};
    uint32_t node = 0;
    for (size_t at = begin; at < text.size();) {
      const auto edge = edges_.find(uint64_t{node} * 256 + static_cast<unsigned char>(text[at]));
      if (edge == edges_.end()) break;
      node = edge->second;
      ++at;
      if (ends_[node] != kNone) longest = {begin, at, ends_[node]};
    }
    if (longest.token != kNone) return longest;
  }
  return std::nullopt;
}

std::optional<TokenFinder::Found> TokenFinder::next(std::string_view text, size_t& from, size_t done) const {
  while (const auto hit = next_hit(text, from)) {
    from = hit->end;
    const auto& token = tokens_[hit->token];
    const auto before = text.substr(0, hit->begin), after = text.substr(hit->end);
    if (token.single_word && (is_word(last_character(before)) || is_word(first_character(after)))) {
      continue;
    }
    Found found{hit->begin, hit->end, token.id};
    if (token.lstrip) found.begin = std::max(done, before.size() - trailing_space(before));
    if (token.rstrip) found.end += leading_space(after);
    if (found.begin >= found.end) continue;  // the token before it took all of this one
    return found;
  }
  return std::nullopt;
}

}  // namespace athanor::inline tokenizer
