// A SentencePiece model of any kind (unigram, BPE, word, char), by libsentencepiece, with its ids and its text.
//
// Decoded ids need not give the original text: most models normalise (NFKC, runs of spaces become one).

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer_backend.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"

namespace athanor::inline tokenizer {
namespace {

using sentencepiece::SentencePieceProcessor;

// The library's sizes are ints, and normalisation may turn a byte into several.
constexpr size_t kMaxTextBytes = size_t{1} << 28;

// Returns the byte that a piece like <0xE3> represents.
char byte_of(const SentencePieceProcessor& model, int id) {
  return static_cast<char>(std::stoi(model.IdToPiece(id).substr(3, 2), nullptr, 16));
}

std::string decode_ids(const SentencePieceProcessor& model, const std::vector<int>& ids) {
  std::string text;
  const auto status = model.Decode(ids, &text);
  if (!status.ok()) fail<DataError>("SentencePiece cannot decode: {}", status.ToString());
  return text;
}

// Decodes the last pieces again with each new one, since the text of a piece depends on the pieces before it: at the
// beginning its space is removed, and bytes become characters together.
class PieceStream : public DecodeStream {
 public:
  explicit PieceStream(const SentencePieceProcessor& model) : model_(model) {}

  std::string push(uint32_t id) override {
    if (id >= static_cast<uint32_t>(model_.GetPieceSize())) return {};
    window_.push_back(static_cast<int>(id));
    const bool is_byte = model_.IsByte(window_.back());
    if (is_byte) {
      byte_run_ += byte_of(model_, window_.back());
    } else {
      byte_run_.clear();
    }
    const auto text = decode_ids(model_, window_);
    // Each byte that is not a character yet is shown as U+FFFD, which is three bytes long.
    auto fresh = take(text, text.size() - std::min(text.size(), 3 * unfinished_utf8_suffix(byte_run_)));
    if (!is_byte && window_.size() >= kWindow) restart();
    return fresh;
  }

  std::string finish() override {
    const auto text = decode_ids(model_, window_);
    return take(text, text.size());
  }

 private:
  static constexpr size_t kWindow = 32;

  std::string take(const std::string& text, size_t end) {
    if (end <= num_given_) return {};
    auto fresh = text.substr(num_given_, end - num_given_);
    num_given_ = end;
    return fresh;
  }
  // Continues from the last piece alone, if that has text: the following pieces are then decoded as in the middle of a
  // text.
  void restart() {
    const std::vector<int> last{window_.back()};
    const auto text = decode_ids(model_, last);
    if (text.empty() || text == " ") return;
    window_ = last;
    num_given_ = text.size();
  }

  const SentencePieceProcessor& model_;
  std::vector<int> window_;
  std::string byte_run_;
  size_t num_given_ = 0;
};

class SentencePieceTokenizer : public TokenizerBackend {
 public:
  SentencePieceTokenizer(std::string model, const std::string& name, const CompanionFiles& companions)
      : file_(std::move(model)) {
    const auto file = parse_sentencepiece_file(file_, name);
    const auto status = model_.LoadFromSerializedProto(file_);
    ATHANOR_CHECK_DATA(status.ok(), "{}: SentencePiece cannot use this model: {}", name, status.ToString());
    refuse_other_tokens(companions, name);
    if (file.type != SentencePieceFile::ModelType::kUnigram) return;
    unigram_.emplace(file);
    byte_fallback_ = file.byte_fallback;
    for (int id = 0; id < model_.GetPieceSize(); ++id) {
      if (model_.IsByte(id)) byte_ids_[static_cast<unsigned char>(byte_of(model_, id))] = static_cast<uint32_t>(id);
    }
  }

  // The text of a control piece never becomes that piece.
  void encode(std::string_view utf8, SpecialText, std::vector<uint32_t>& out) const override {
    ATHANOR_CHECK_DATA(utf8.size() <= kMaxTextBytes,
                       "a document of {} bytes is too long for SentencePiece, which takes {}; cut it", utf8.size(),
                       kMaxTextBytes);
    if (unigram_) return encode_unigram(utf8, out);
    std::vector<int> ids;
    const auto status = model_.Encode(utf8, &ids);
    ATHANOR_CHECK_DATA(status.ok(), "SentencePiece cannot encode this text: {}", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  std::string decode(std::span<const uint32_t> ids, bool) const override {
    std::vector<int> known;
    known.reserve(ids.size());
    for (const uint32_t id : ids) {
      if (id < vocab_size()) known.push_back(static_cast<int>(id));
    }
    return decode_ids(model_, known);
  }

  std::unique_ptr<DecodeStream> stream(bool) const override { return std::make_unique<PieceStream>(model_); }

  uint32_t vocab_size() const override { return static_cast<uint32_t>(model_.GetPieceSize()); }

  std::optional<uint32_t> token_to_id(std::string_view token) const override {
    const int id = model_.PieceToId(token);  // an unknown token is <unk>
    if (id < 0 || id >= model_.GetPieceSize() || model_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  std::vector<uint32_t> special_ids() const override {
    std::vector<uint32_t> ids;
    for (int id = 0; id < model_.GetPieceSize(); ++id) {
      if (model_.IsControl(id)) ids.push_back(static_cast<uint32_t>(id));
    }
    return ids;
  }

  std::optional<uint32_t> eos_id() const override {
    const int id = model_.eos_id();
    if (id < 0 || id >= model_.GetPieceSize()) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  const char* file_name() const override { return "tokenizer.model"; }
  const std::string& file_bytes() const override { return file_; }

 private:
  void refuse_other_tokens(const CompanionFiles& companions, const std::string& name) const {
    for (const auto& token : companions.tokens) {
      ATHANOR_CHECK_DATA(!token.id || token_to_id(token.content) == token.id,
                         "{}: \"{}\" has the id {}, which {} does not give it; save this tokenizer as a tokenizer.json "
                         "(save_pretrained of transformers does)",
                         token.file, token.content, *token.id, name);
    }
  }

  // Its pieces joined are the normalised text; unigram.h finds the pieces anew.
  std::string normalized(std::string_view utf8) const {
    const auto encoded = model_.EncodeAsImmutableProto(utf8);
    std::string text;
    text.reserve(utf8.size() * 3 / 2);
    for (size_t i = 0; i < encoded.pieces_size(); ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      const auto id = static_cast<int>(piece.id());
      if (model_.IsByte(id)) {
        text += byte_of(model_, id);
      } else {
        text += piece.piece();
      }
    }
    return text;
  }

  void encode_unigram(std::string_view utf8, std::vector<uint32_t>& out) const {
    Unigram::Scratch scratch;
    const auto text = normalized(utf8);
    bool after_unknown = false;
    unigram_->encode(text, scratch, [&](std::string_view piece, std::optional<uint32_t> id) {
      if (id) {
        out.push_back(*id);
      } else if (byte_fallback_) {
        for (const char c : piece) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      } else if (!after_unknown) {  // a run of unknown characters is one piece
        out.push_back(static_cast<uint32_t>(model_.unk_id()));
      }
      after_unknown = !id;
    });
  }

  std::string file_;
  SentencePieceProcessor model_;
  std::optional<Unigram> unigram_;
  bool byte_fallback_ = false;
  std::array<uint32_t, 256> byte_ids_{};
};

}  // namespace

std::shared_ptr<const TokenizerBackend> make_sentencepiece_tokenizer(std::string model,
                                                                     const std::string& name_for_errors,
                                                                     const CompanionFiles& companions) {
  return std::make_shared<SentencePieceTokenizer>(std::move(model), name_for_errors, companions);
}

}  // namespace athanor::inline tokenizer
