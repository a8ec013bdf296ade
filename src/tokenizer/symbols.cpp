#include "tokenizer/symbols.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

// Returns false for bytes that no UTF-8 text contains; vocabularies trained on text lack them.
bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

void SymbolTable::Ids::set(uint32_t c, uint32_t id) {
  auto& page = page_of_[c / kPageSize];
  if (page == 0) {
    page = static_cast<uint32_t>(ids_.size() / kPageSize);
    ids_.resize(ids_.size() + kPageSize, kNone);
  }
  ids_[page * kPageSize + c % kPageSize] = id;
}

SymbolTable::SymbolTable(SymbolOptions options, const std::vector<std::string>& tokens, const TokenToId& token_to_id)
    : options_(std::move(options)) {
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) read_symbol(tokens[id], id);
  }
  byte_ids_.fill(kNone);
  for (int byte = 0; byte < 256 && options_.byte_fallback; ++byte) {
    byte_ids_[byte] = token_to_id(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  if (std::count(byte_ids_.begin(), byte_ids_.end(), kNone) == 0) unknown_kind_ = Kind::kBytes;
  if (options_.unknown) unknown_ = token_to_id(*options_.unknown).value_or(kNone);
}

void SymbolTable::read_symbol(std::string_view token, uint32_t id) {
  const int num_places = has_affixes() ? kNumPlaces : 1;
  for (int place = 0; place < num_places; ++place) {
    std::string_view rest = token;
    if (place & kAfterFirst) {
      if (!rest.starts_with(options_.prefix)) continue;
      rest.remove_prefix(options_.prefix.size());
    }
    if (place & kLast) {
      if (!rest.ends_with(options_.suffix)) continue;
      rest.remove_suffix(options_.suffix.size());
    }
    if (rest.empty() || decode_utf8(rest.data()).num_bytes != rest.size()) continue;
    if (options_.kind == WordKind::kCharacters) {
      ids_[place].set(decode_utf8(rest.data()).code_point, id);
    } else if (const auto bytes = bytes_from_alphabet(rest)) {
      ids_[place].set(static_cast<unsigned char>(bytes->front()), id);
    }
  }
}

void SymbolTable::append(std::string_view word, std::vector<uint32_t>& ids) const {
  const bool affixes = has_affixes();
  uint32_t pending = kNone;  // an unknown token that is not written yet: it may be merged with the next one
  for (size_t at = 0; at < word.size();) {
    const bool is_byte = options_.kind == WordKind::kBytes;
    const auto [c, length] = is_byte ? DecodedChar{static_cast<unsigned char>(word[at]), 1} : decode_utf8(&word[at]);
    const int place = affixes ? (at > 0 ? kAfterFirst : 0) | (at + length == word.size() ? kLast : 0) : 0;
    const uint32_t id = ids_[place].find(c);
    at += length;
    if (id == kNone) {
      append_unknown(c, place, pending, ids);
      continue;
    }
    if (pending != kNone) ids.push_back(std::exchange(pending, kNone));
    ids.push_back(id);
  }
  if (pending != kNone) ids.push_back(pending);
}

std::string SymbolTable::spelling(uint32_t c, int place) const {
  std::string text;
  if (place & kAfterFirst) text += options_.prefix;
  append_utf8(text, options_.kind == WordKind::kBytes ? code_point_of_byte(static_cast<uint8_t>(c)) : c);
  if (place & kLast) text += options_.suffix;
  return text;
}

void SymbolTable::append_unknown(uint32_t c, int place, uint32_t& pending, std::vector<uint32_t>& ids) const {
  if (options_.byte_fallback) {
    const auto text = spelling(c, place);
    const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (std::none_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) == kNone; })) {
      // An unknown token before them stays pending and comes after them, as in `tokenizers`.
      for (const char byte : text) ids.push_back(id_of(byte));
      return;
    }
  }
  if (!options_.unknown) return;
  ATHANOR_CHECK_DATA(unknown_ != kNone, "the text needs the unk_token \"{}\", which is not in model.vocab",
                     *options_.unknown);
  if (pending != kNone && !options_.fuse_unknown) ids.push_back(pending);
  pending = unknown_;
}

bool SymbolTable::loses_text() const {
  if (options_.unknown || unknown_kind_ == Kind::kBytes) return false;
  if (options_.kind == WordKind::kCharacters) return true;
  for (int byte = 0; byte < 256; ++byte) {
    for (int place = 0; place < (has_affixes() ? kNumPlaces : 1); ++place) {
      if (occurs_in_utf8(byte) && ids_[place].find(static_cast<uint32_t>(byte)) == kNone) return true;
    }
  }
  return false;
}

}  // namespace athanor::inline tokenizer
