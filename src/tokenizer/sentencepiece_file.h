#pragma once
// Parses a SentencePiece .model before libsentencepiece does, for two reasons: libsentencepiece accepts a file that was
// cut off between two fields, and its interface does not give all properties of the pieces.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline tokenizer {

struct SentencePieceFile {
  enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string_view text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  ModelType type = ModelType::kUnigram;
  bool byte_fallback = false;
  std::vector<Piece> pieces;  // by id; views into the file
};

/// Parses a ModelProto: pieces, then trainer_spec and normalizer_spec, each preceded by its length.
/// @throws DataError naming `name` and the byte.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& name);

}  // namespace athanor::inline tokenizer
