// Tests tokenizers of characters, and the parts that byte-level ones do not have. tests/interop/test_tokenizer_parts.py
// compares with `tokenizers` itself.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/testing/tokenizer_json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode_forms.h"

namespace athanor::tokenizer_parts_test {
namespace {

using Ids = std::vector<uint32_t>;
using nlohmann::json;

Tokenizer make(const json& file, bool plain = false) { return Tokenizer::parse(file.dump(), "t.json", plain); }

std::string complaint(const std::string& text) {
  try {
    Tokenizer::parse(text, "t.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

// Characters with byte fallback, without a pre-tokenizer. The ids are: <unk> 0, bytes 1-256, then `characters`, then
// merges.
json character_json(const std::vector<std::string>& characters, const std::vector<std::array<std::string, 2>>& merges) {
  json vocab;
  vocab["<unk>"] = 0;
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = byte + 1;
  for (const auto& character : characters) vocab[character] = vocab.size();
  json pairs = json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    pairs.push_back(json::array({left, right}));
  }
  return {{"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", pairs},
            {"byte_fallback", true},
            {"unk_token", "<unk>"},
            {"fuse_unk", true}}}};
}

TEST(TokenizerParts, ACharacterWithoutTokenBecomesItsBytes) {
  const auto tokenizer = make(character_json({"a", "b"}, {{"a", "b"}}));
  EXPECT_EQ(tokenizer.encode("ab\u00e9a"), (Ids{259, 1 + 0xC3, 1 + 0xA9, 257}));
  EXPECT_EQ(tokenizer.decode(Ids{257, 258}), "a b");  // no decoder: spaces between tokens
}

TEST(TokenizerParts, AnUnknownTokenComesAfterTheBytesThatFollowIt) {
  auto file = character_json({"a"}, {});
  file["model"]["vocab"].erase("<0xC3>");
  // é is unknown, z is a byte; unknown tokens are fused
  EXPECT_EQ(make(file).encode("a\u00e9z\u00e9a"), (Ids{257, 1 + 'z', 0, 257}));
}

// A long word is cut at points that no merge can cross; ids must not show the cuts.
TEST(TokenizerParts, CutsInLongWordsDoNotChangeIds) {
  const std::vector<std::string> characters{"▁", "a", "b", "c", "\u6f22"};
  const CounterRandom random(5, "cuts");
  for (uint64_t round = 0; round < 60; ++round) {
    std::vector<std::array<std::string, 2>> merges;
    auto tokens = characters;
    for (uint64_t i = 0; i < 2 + round / 4; ++i) {
      const auto& left = tokens[random.below(round * 1000 + 2 * i, tokens.size())];
      const auto& right = tokens[random.below(round * 1000 + 2 * i + 1, tokens.size())];
      merges.push_back({left, right});
      tokens.push_back(left + right);
    }
    if (round % 7 == 0) merges.push_back({"<0x7A>", "a"});
    auto file = character_json(characters, merges);
    if (round % 5 == 0) file["model"]["byte_fallback"] = false;
    const auto fast = make(file), plain = make(file, true);
    std::string text;
    for (uint64_t i = 0; i < 400; ++i) {
      const std::vector<std::string> choices{"▁", "a", "b", "c", "\u6f22", "z", "a", "a"};
      text += choices[random.below(1'000'000 + round * 1000 + i, choices.size())];
    }
    EXPECT_EQ(fast.encode(text), plain.encode(text)) << file["model"]["merges"];
  }
}

TEST(TokenizerParts, AffixesBelongToTheFirstAndTheLastSymbol) {
  json file = {{"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"#a", 1}, {"#b$", 2}, {"a$", 3}, {"?", 4}, {"a#", 5}, {"ab$", 6}}},
                 {"merges", {"a #b$"}},
                 {"unk_token", "?"},
                 {"continuing_subword_prefix", "#"},
                 {"end_of_word_suffix", "$"}}}};
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("a"), Ids{3});
  EXPECT_EQ(tokenizer.encode("ab"), Ids{6});
  EXPECT_EQ(tokenizer.encode("aab b"), (Ids{0, 1, 2, 4}));
}

TEST(TokenizerParts, AStreamThroughAChainOfDecodersEqualsDecode) {
  auto file = character_json({"▁", "a", "b"}, {{"▁", "a"}});
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders", {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}};
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("▁a▁▁b\u6f22")), "a  b\u6f22");
  const CounterRandom random(2, "stream");
  for (uint64_t round = 0; round < 200; ++round) {
    Ids ids;
    for (uint64_t i = 0; i < 12; ++i) {
      const auto kind = random.below(round * 100 + 2 * i, 3);
      const auto draw = static_cast<uint32_t>(random.below(round * 100 + 2 * i + 1, 256));
      ids.push_back(kind == 0   ? draw + 1
                    : kind == 1 ? 257 + draw % 4
                                : std::array<uint32_t, 3>{0xE6, 0xBC, 0xA2}[i % 3] + 1);
    }
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const uint32_t id : ids) text += decoder.push(id);
    text += decoder.finish();
    EXPECT_EQ(text, tokenizer.decode(ids));
  }
}

TEST(TokenizerParts, SequencesNestedTenThousandDeepAreRefused) {
  const auto nested = [](const std::string& part, const std::string& parts) {
    std::string value;
    for (int i = 0; i < 10000; ++i) value += R"({"type":"Sequence",")" + parts + R"(":[)";
    value += R"({"type":"NFC"})";
    for (int i = 0; i < 10000; ++i) value += "]}";
    auto file = byte_tokenizer_json().dump();
    return "{\"" + part + "\":" + value + ",\"model\":" + byte_tokenizer_json()["model"].dump() + "}";
  };
  for (const auto& text :
       {nested("normalizer", "normalizers"), nested("pre_tokenizer", "pretokenizers"), nested("decoder", "decoders")}) {
    EXPECT_NE(complaint(text).find("nested deeper than 64 levels"), std::string::npos) << complaint(text);
  }
}

TEST(TokenizerParts, ManyByteLevelsOneOverTheOtherAreRefused) {
  auto file = byte_tokenizer_json();
  const auto byte_level = file["pre_tokenizer"];
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 40; ++i) file["pre_tokenizer"]["pretokenizers"].push_back(byte_level);
  EXPECT_NE(complaint(file.dump()).find("more than 4 ByteLevel"), std::string::npos);
}

TEST(TokenizerParts, SpecialTokensStandWhereTheTemplateSays) {
  const std::string file = R"({"post_processor":{"type":"TemplateProcessing","single":[
    {"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>"}}],
    "special_tokens":{"<s>":{"ids":[1,7]},"</s>":{"ids":[2]}}}})";
  EXPECT_EQ(read_text_template(file, "t.json").around(Ids{5, 6}), (Ids{1, 7, 5, 6, 2}));
  EXPECT_EQ(read_text_template("{}", "t.json").around(Ids{5}), Ids{5});
  EXPECT_THROW(read_text_template(R"({"post_processor":{"type":"X"}})", "t.json"), DataError);
  EXPECT_THROW(read_text_template(R"({"post_processor":{"type":"TemplateProcessing","single":[]}})", "t.json"),
               DataError);
}

TEST(UnicodeForms, DecomposeReplaceAndSort) {
  const auto form = [](UnicodeForm which, std::string_view text) {
    std::string storage;
    return std::string(normalize_unicode(which, text, storage));
  };
  EXPECT_EQ(form(UnicodeForm::kNfd, "x\u00e9y\u1e09"), "xe\u0301yc\u0327\u0301");
  EXPECT_EQ(form(UnicodeForm::kNfd, "a\u0301\u0323b"), "a\u0323\u0301b");
  EXPECT_EQ(form(UnicodeForm::kNfkc, "\ufb01\u00a0\uff21\u212b"), "fi A\u00c5");
  EXPECT_EQ(form(UnicodeForm::kNfkd, "\u2460\u00bd"), "11\u20442");
  EXPECT_EQ(form(UnicodeForm::kNfkc, "\uff8a\uff9f"), "\u30d1");  // half-width, and its mark composes
}

TEST(UnicodeForms, HalfAMillionMarksInTheWrongOrderAreNoTrouble) {
  std::string text("a"), storage;
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0316";
  const auto sorted = normalize_unicode(UnicodeForm::kNfc, text, storage);  // sorting by insertion would take an hour
  EXPECT_TRUE(sorted.starts_with("\u00e1\u0316") || sorted.starts_with("a\u0316"));
  EXPECT_EQ(sorted.find("\u0301\u0316"), sorted.npos);
}

}  // namespace
}  // namespace athanor::tokenizer_parts_test
