#include "data/tokenizer/sentencepiece_file.h"

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace athanor {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;

// The wire format of protocol buffers: a key (number, kind), then a varint, 4 or 8 bytes, or a length and bytes.
class WireReader {
 public:
  struct Field {
    uint64_t number;
    std::string_view bytes;  // only of kind 2
  };

  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  size_t position() const { return at_; }
  bool at_end() const { return at_ == bytes_.size(); }

  /// None where the bytes are no field.
  std::optional<Field> next() {
    const auto key = varint();
    if (!key || *key >> 3 == 0) return std::nullopt;
    Field field{*key >> 3, {}};
    switch (*key & 7) {
      case 0: return varint() ? std::optional(field) : std::nullopt;
      case 1: return skip(8) ? std::optional(field) : std::nullopt;
      case 5: return skip(4) ? std::optional(field) : std::nullopt;
      case 2: break;
      default: return std::nullopt;
    }
    const auto length = varint();
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
  bool skip(size_t num_bytes) {
    if (num_bytes > bytes_.size() - at_) return false;
    at_ += num_bytes;
    return true;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace

void check_sentencepiece_file(std::string_view bytes, const std::string& name) {
  WireReader reader(bytes);
  bool any_piece = false, trainer_spec = false, normalizer_spec = false;
  while (!reader.at_end()) {
    const size_t begin = reader.position();
    const auto field = reader.next();
    ATHANOR_CHECK_DATA(field, "{}: no SentencePiece model, or cut off: what begins at byte {} of {} is not whole{}",
                       name, begin, bytes.size(), begin == 0 ? "" : "; get the file again");
    any_piece |= field->number == kPieces;
    trainer_spec |= field->number == kTrainerSpec;
    normalizer_spec |= field->number == kNormalizerSpec;
  }
  ATHANOR_CHECK_DATA(any_piece && trainer_spec && normalizer_spec,
                     "{}: no SentencePiece model, or cut off after {} bytes: it has no {}; get the file again", name,
                     bytes.size(),
                     !any_piece      ? "pieces"
                     : !trainer_spec ? "trainer_spec"
                                     : "normalizer_spec");
}

}  // namespace athanor
