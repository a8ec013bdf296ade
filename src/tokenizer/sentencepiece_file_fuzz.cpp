// Any bytes as a SentencePiece model: if they are accepted, any text can be encoded with them.

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/unigram.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto file = parse_sentencepiece_file(bytes, "fuzz");
    const Unigram unigram(file);
    const auto text = bytes.substr(0, find_invalid_utf8(bytes).value_or(size));
    Unigram::Scratch scratch;
    size_t num_bytes = 0;
    unigram.encode(text, scratch, [&](std::string_view piece, std::optional<uint32_t> id) {
      ATHANOR_ASSERT(!piece.empty() && (!id || *id < file.pieces.size()));
      num_bytes += piece.size();
    });
    ATHANOR_ASSERT(num_bytes == text.size());
  } catch (const DataError&) {
  }
  return 0;
}
