// Bytes as a tokenizer.json; what parses must encode and decode a slice of them without harm.

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace athanor;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = Tokenizer::parse(bytes, "fuzz");
    auto text = bytes.substr(0, 2000);
    text = text.substr(0, find_invalid_utf8(text).value_or(text.size()));
    const auto ids = tokenizer.encode(text);
    for (const uint32_t id : ids) ATHANOR_ASSERT(id < tokenizer.vocab_size());
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const uint32_t id : ids) streamed += decoder.push(id);
    ATHANOR_ASSERT(streamed + decoder.finish() == tokenizer.decode(ids));
  } catch (const DataError&) {
  }
  return 0;
}
