// Reads bytes as a tokenizer.json; if they parse, it must encode and decode a slice of them without harm.
//
// Random bytes are hardly ever JSON, so each input also replaces a part of a small good file: its first two bytes
// determine the file and the position, the third determines how much it replaces.

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline tokenizer {
namespace {

constexpr std::string_view kGoodFiles[] = {R"({
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
"merges":["a b","ab c",["Ġ","a"],"b c"]}})",
                                           R"({
"added_tokens":[{"id":7,"content":" a ","single_word":false,"lstrip":true,"rstrip":true,"normalized":true,"special":true}],
"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"Strip","strip_left":true,"strip_right":false},
{"type":"StripAccents"},{"type":"Lowercase"},{"type":"Nmt"},{"type":"Prepend","prepend":"▁"},
{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},
{"type":"Replace","pattern":{"String":" "},"content":"▁"},{"type":"Replace","pattern":{"Regex":"b+?"},"content":"ab"}]},
"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},
{"type":"Punctuation","behavior":"MergedWithNext"},{"type":"CharDelimiterSplit","delimiter":"c"},
{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},{"type":"FixedLength","length":9}]},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}},
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},
{"type":"Metaspace","replacement":"_","prepend_scheme":"always"},{"type":"WordPiece","prefix":"##","cleanup":true},
{"type":"BPEDecoder","suffix":"$"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
"model":{"type":"BPE","unk_token":"a","fuse_unk":true,"byte_fallback":true,"ignore_merges":true,
"continuing_subword_prefix":"#","end_of_word_suffix":"$",
"vocab":{"a":0,"#b":1,"#b$":2,"▁":3,"<0x61>":4,"ab":5,"ab$":6},"merges":["a #b","a #b$"]}})"};

std::string laid_over_good_file(std::string_view bytes) {
  if (bytes.size() < 3) return std::string(kGoodFiles[bytes.size() % 2]);
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  std::string file(kGoodFiles[byte(0) / 128]);
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
    read_text_template(file, "fuzz");
  } catch (const DataError&) {
  }
}

}  // namespace
}  // namespace athanor::inline tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  athanor::log::set_level(athanor::log::Level::kError);  // bad vocabularies cause warnings
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  athanor::parse_and_use(bytes, bytes.substr(0, 2000));
  const auto file = athanor::laid_over_good_file(bytes);
  athanor::parse_and_use(file, file);
  return 0;
}
