#include "tokenizer/sentencepiece_file.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace athanor::inline tokenizer {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr uint64_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint64_t kModelType = 3, kByteFallback = 35;
constexpr uint64_t kCharsMap = 2;

// The wire format of protocol buffers: a key (number, kind), then a varint, 4 or 8 bytes, or a length and bytes.
class WireReader {
 public:
  struct Field {
    uint64_t number;
    std::string_view bytes;  // for kinds 1, 2 and 5
    uint64_t value = 0;      // for kind 0
  };

  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  size_t position() const { return at_; }
  bool at_end() const { return at_ == bytes_.size(); }

  /// Returns none if the bytes are not a field.
  std::optional<Field> next() {
    const auto key = varint();
    if (!key || *key >> 3 == 0) return std::nullopt;
    Field field{*key >> 3, {}};
    std::optional<uint64_t> length;
    switch (*key & 7) {
      case 0:
        if (const auto value = varint()) return Field{field.number, {}, *value};
        return std::nullopt;
      case 1: length = 8; break;
      case 5: length = 4; break;
      case 2: length = varint(); break;
      default: return std::nullopt;
    }
    if (!length || *length > bytes_.size() - at_) return std::nullopt;
    field.bytes = bytes_.substr(at_, *length);
    at_ += *length;
    return field;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::string_view bytes_;
  size_t at_ = 0;
};

// Calls `visit` with each field of `bytes`; returns false if the bytes are not fields.
template <class Visit>
bool for_each_field(std::string_view bytes, Visit visit) {
  WireReader reader(bytes);
  while (!reader.at_end()) {
    const auto field = reader.next();
    if (!field) return false;
    visit(*field);
  }
  return true;
}

bool parse_piece(std::string_view bytes, SentencePieceFile::Piece& piece) {
  return for_each_field(bytes, [&](const WireReader::Field& field) {
    if (field.number == kPieceText) piece.text = field.bytes;
    if (field.number == kPieceScore && field.bytes.size() == sizeof(float)) {
      std::memcpy(&piece.score, field.bytes.data(), sizeof(float));
    }
    if (field.number == kPieceType) piece.type = static_cast<SentencePieceFile::PieceType>(field.value);
  });
}

bool parse_trainer_spec(std::string_view bytes, SentencePieceFile& file) {
  return for_each_field(bytes, [&](const WireReader::Field& field) {
    if (field.number == kModelType) file.type = static_cast<SentencePieceFile::ModelType>(field.value);
    if (field.number == kByteFallback) file.byte_fallback = field.value != 0;
  });
}

// Checks the replacements of a normaliser: the size of a double-array trie, the trie, and the texts that its values
// point into, each ended by a zero. The library follows the trie's offsets without checks; after this check none leads
// outside.
bool check_chars_map(std::string_view map) {
  if (map.empty()) return true;
  uint32_t trie_bytes = 0;
  if (map.size() <= sizeof(trie_bytes)) return false;
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  map.remove_prefix(sizeof(trie_bytes));
  constexpr size_t kBlock = 256;  // units that share all but their last eight bits
  if (trie_bytes == 0 || trie_bytes >= map.size() || trie_bytes % (kBlock * sizeof(uint32_t)) != 0) return false;
  const auto texts = map.substr(trie_bytes);
  if (texts.back() != '\0') return false;
  const size_t num_units = trie_bytes / sizeof(uint32_t);
  std::vector<uint32_t> units(num_units);
  std::memcpy(units.data(), map.data(), trie_bytes);
  const auto is_leaf = [](uint32_t unit) { return unit >> 31 != 0; };
  for (size_t i = 0; i < num_units; ++i) {
    if (is_leaf(units[i])) continue;
    const size_t children = i ^ (size_t{units[i] >> 10} << ((units[i] & 1u << 9) >> 6));
    if ((children | (kBlock - 1)) >= num_units) return false;
    const bool has_leaf = units[i] >> 8 & 1;
    if (has_leaf && (!is_leaf(units[children]) || (units[children] & 0x7FFFFFFF) >= texts.size())) return false;
  }
  return true;
}

bool check_normalizer_spec(std::string_view bytes) {
  bool good = true;
  return for_each_field(bytes,
                        [&](const WireReader::Field& field) {
                          if (field.number == kCharsMap) good &= check_chars_map(field.bytes);
                        }) &&
         good;
}

}  // namespace

SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& name) {
  SentencePieceFile file;
  WireReader reader(bytes);
  bool trainer_spec = false, normalizer_spec = false;
  while (!reader.at_end()) {
    const size_t begin = reader.position();
    const auto field = reader.next();
    bool whole = field.has_value();
    if (whole && field->number == kPieces) whole = parse_piece(field->bytes, file.pieces.emplace_back());
    if (whole && field->number == kTrainerSpec) whole = trainer_spec = parse_trainer_spec(field->bytes, file);
    if (whole && (field->number == kNormalizerSpec || field->number == kDenormalizerSpec)) {
      ATHANOR_CHECK_DATA(check_normalizer_spec(field->bytes),
                         "{}: damaged: the normalizer's table at byte {} points outside itself; get the file again",
                         name, begin);
    }
    ATHANOR_CHECK_DATA(whole, "{}: no SentencePiece model, or cut off: what begins at byte {} of {} is not whole{}",
                       name, begin, bytes.size(), begin == 0 ? "" : "; get the file again");
    normalizer_spec |= field->number == kNormalizerSpec;
  }
  ATHANOR_CHECK_DATA(!file.pieces.empty() && trainer_spec && normalizer_spec,
                     "{}: no SentencePiece model, or cut off after {} bytes: it has no {}; get the file again", name,
                     bytes.size(),
                     file.pieces.empty() ? "pieces"
                     : !trainer_spec     ? "trainer_spec"
                                         : "normalizer_spec");
  return file;
}

}  // namespace athanor::inline tokenizer
