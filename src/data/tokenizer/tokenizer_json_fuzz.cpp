// Bytes as a tokenizer.json; what parses must encode and decode a slice of them without harm.
//
// Random bytes are hardly ever JSON, so each input is also laid over a small good file: its first two bytes say where,
// the third how much it replaces.

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer.h"

namespace athanor {
namespace {

constexpr std::string_view kGoodFile = R"({
"added_tokens":[{"id":12,"content":"<x>","single_word":false,"lstrip":true,"rstrip":true,"normalized":false,"special":true},
{"id":13,"content":"é","single_word":true,"lstrip":false,"rstrip":false,"normalized":true,"special":false}],
"normalizer":{"type":"NFC"},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[
{"type":"Split","pattern":{"Regex":"(?i:'s)|[^\\r\\n\\p{L}]?\\w+|\\p{N}{1,3}|\\s+(?!\\S)|."},"behavior":"MergedWithNext","invert":false},
{"type":"Split","pattern":{"String":"b"},"behavior":"Contiguous","invert":true},
{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]},
"decoder":{"type":"ByteLevel"},
"model":{"type":"BPE","unk_token":"a","fuse_unk":false,"ignore_merges":false,
"vocab":{"a":0,"b":1,"c":2,"Ġ":3,"\"":4,"{":5,"Ã":6,"©":7,"ab":8,"abc":9,"Ġa":10,"bc":11},
"merges":["a b","ab c",["Ġ","a"],"b c"]}})";

std::string laid_over_good_file(std::string_view bytes) {
  std::string file(kGoodFile);
  if (bytes.size() < 3) return file;
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  return file.replace((byte(0) * 256 + byte(1)) % file.size(), byte(2), bytes.substr(3));
}

void parse_and_use(std::string_view file, std::string_view text) {
  try {
    const auto tokenizer = Tokenizer::parse(file, "fuzz");
    text = text.substr(0, find_invalid_utf8(text).value_or(text.size()));
    const auto ids = tokenizer.encode(text);
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const uint32_t id : ids) {
      ATHANOR_ASSERT(id < tokenizer.vocab_size());
      streamed += decoder.push(id);
    }
    ATHANOR_ASSERT(streamed + decoder.finish() == tokenizer.decode(ids));
  } catch (const DataError&) {
  }
}

}  // namespace
}  // namespace athanor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  athanor::parse_and_use(bytes, bytes.substr(0, 2000));
  const auto file = athanor::laid_over_good_file(bytes);
  athanor::parse_and_use(file, file);
  return 0;
}
