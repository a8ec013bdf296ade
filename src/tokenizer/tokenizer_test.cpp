#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>
#include <type_traits>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/text.h"
#include "tokenizer/testing/tokenizer_json.h"

namespace athanor::tokenizer_test {
namespace {

using Ids = std::vector<uint32_t>;
using nlohmann::json;

Tokenizer make(const json& file) { return Tokenizer::parse(file.dump(), "t.json"); }

// Returns the error of parsing `text`.
std::string complaint(const std::string& text) {
  try {
    Tokenizer::parse(text, "t.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

template <class Json>
requires std::is_same_v<Json, json> std::string complaint(const Json& file) { return complaint(file.dump()); }

Ids bytes_of(const std::string& text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  auto file = byte_tokenizer_json();
  for (const auto* token : {"ab", "bc", "abc", "aa"}) {
    auto& vocab = file["model"]["vocab"];
    vocab[token] = vocab.size();
  }
  file["model"]["merges"] = {"b c", "a b", "a bc", "a a"};
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("abc"), Ids{258});  // b c first, then a bc
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{256, 256}));
  EXPECT_EQ(tokenizer.encode("aaaaa"), (Ids{259, 259, 'a'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, MergesMayBeStringsOrPairsAndTheLastOfTwoEqualOnesCounts) {
  auto file = byte_tokenizer_json({"ab"});
  file["model"]["vocab"]["bc"] = 257;
  file["model"]["merges"] = json::array({{"a", "b"}, {"b", "c"}});
  EXPECT_EQ(make(file).encode("abc"), (Ids{256, 'c'}));
  file["model"]["merges"] = json::array({"#version: 0.2", "a b", "b c", "a b"});
  EXPECT_EQ(make(file).encode("abc"), (Ids{'a', 257}));
}

// Compares words shorter and longer than the border between the two merge algorithms with a plain one.
TEST(Tokenizer, ShortAndLongWordsAreMergedAlike) {
  auto file = byte_tokenizer_json();
  std::vector<std::pair<Ids, uint32_t>> merges;  // (left, right) to id, by rank
  std::vector<std::string> tokens{"a", "b", "c"};
  std::vector<uint32_t> ids{'a', 'b', 'c'};
  const CounterRandom random(1, "merges");
  file["model"]["merges"] = json::array();
  for (uint64_t i = 0; merges.size() < 60; ++i) {
    const size_t left = random.below(2 * i, tokens.size()), right = random.below(2 * i + 1, tokens.size());
    const auto joined = tokens[left] + tokens[right];
    if (file["model"]["vocab"].contains(joined) || joined.size() > 12) continue;
    const auto id = static_cast<uint32_t>(file["model"]["vocab"].size());
    file["model"]["vocab"][joined] = id;
    file["model"]["merges"].push_back(tokens[left] + " " + tokens[right]);
    merges.push_back({{ids[left], ids[right]}, id});
    tokens.push_back(joined);
    ids.push_back(id);
  }
  const auto tokenizer = make(file);
  for (uint64_t length = 1; length < 300; length += 1 + length / 20) {
    std::string word;
    for (uint64_t i = 0; i < length; ++i) word += "abc"[random.below(length * 1000 + i, 3)];
    auto expected = bytes_of(word);
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto at =
          std::search(expected.begin(), expected.end(), merges[rank].first.begin(), merges[rank].first.end());
      if (at == expected.end()) continue;
      *at = merges[rank].second;
      expected.erase(at + 1);
      rank = static_cast<size_t>(-1);  // the first of all once more
    }
    EXPECT_EQ(tokenizer.encode(word), expected) << word;
  }
}

TEST(Tokenizer, AMegabyteOfOneLetterIsNoTrouble) {
  auto file = byte_tokenizer_json();
  for (const auto* half : {"a", "aa", "aaaa"}) {
    const std::string whole = std::string(half) + half;
    const auto id = file["model"]["vocab"].size();
    file["model"]["vocab"][whole] = id;
    file["model"]["merges"].push_back(std::string(half) + " " + half);
  }
  const auto tokenizer = make(file);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, 'a')).size(), size_t{1} << 17);
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, ' ')).size(), size_t{1} << 20);
  // quadratic merging would take an hour
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Tokenizer, MoreWordsThanTheCacheHoldsKeepTheirIds) {
  const auto tokenizer = make(byte_tokenizer_json({"1234"}));
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " " + std::to_string(i);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, AddedTokensStandAloneAndTheLongestWins) {
  auto file = byte_tokenizer_json({"Ġthe"});
  file["added_tokens"] = {added_token_json(259, "<|end|>"), added_token_json(260, "  ", false),
                          added_token_json(261, "   ", false)};
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("a<|end|> the"), (Ids{'a', 259, 258}));
  EXPECT_EQ(tokenizer.encode("<|end|"), bytes_of("<|end|"));
  EXPECT_EQ(tokenizer.encode("     "), (Ids{261, 260}));
  EXPECT_EQ(tokenizer.vocab_size(), 262u);
  EXPECT_EQ(tokenizer.token_to_id("<|end|>"), 259u);
  EXPECT_EQ(tokenizer.token_to_id("Ġthe"), 258u);
  EXPECT_EQ(tokenizer.token_to_id(" the"), std::nullopt);
}

TEST(Tokenizer, NfcComposesBeforeWordsAreCut) {
  auto file = byte_tokenizer_json({"Ã©"});
  EXPECT_EQ(make(file).encode("e\u0301"), bytes_of("e\u0301"));
  file["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(make(file).encode("e\u0301"), Ids{256});
  // Raw added tokens are searched before normalisation, normalised ones after it.
  file["added_tokens"] = {added_token_json(257, "e\u0301x")};
  EXPECT_EQ(make(file).encode("e\u0301x"), Ids{257});
  EXPECT_EQ(make(file).encode("\u00e9x"), (Ids{256, 'x'}));
  file["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(make(file).encode("\u00e9x"), Ids{257});
}

TEST(Tokenizer, DecodingTurnsBrokenCharactersIntoReplacements) {
  auto file = byte_tokenizer_json({"Ġthe"});
  file["added_tokens"] = {added_token_json(259, "<|end|>")};
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.decode(Ids{258, 259}), " the<|end|>");
  EXPECT_EQ(tokenizer.decode(Ids{258, 259}, true), " the");
  EXPECT_EQ(tokenizer.decode(Ids{0xE6, 0xBC, 0xA2}), "漢");
  EXPECT_EQ(tokenizer.decode(Ids{0xE6, 0xBC, 'a', 0xFF, 0xE6}), "\uFFFDa\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 4000000000u, 'b'}), "ab");
}

TEST(StreamDecoder, NeverGivesHalfACharacterAndEqualsDecodeInTheEnd) {
  const auto tokenizer = make(byte_tokenizer_json());
  const CounterRandom random(3, "stream");
  for (uint64_t round = 0; round < 300; ++round) {
    Ids ids = bytes_of(round % 2 ? "a漢é\U0001F600 " : "");
    for (uint64_t i = 0; i < 20; ++i) ids.push_back(static_cast<uint32_t>(random.below(round * 100 + i, 256)));
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const uint32_t id : ids) {
      const auto more = decoder.push(id);
      EXPECT_FALSE(find_invalid_utf8(more));
      text += more;
    }
    text += decoder.finish();
    EXPECT_EQ(text, tokenizer.decode(ids));
  }
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xE6), "");
  EXPECT_EQ(decoder.push(0xBC), "");
  EXPECT_EQ(decoder.push(0xA2), "漢");
}

TEST(Tokenizer, ThreadsShareOneWithoutDisturbingEachOther) {
  const auto tokenizer = make(byte_tokenizer_json({"Ġthe", "ing"}));
  std::string text;
  for (int i = 0; i < 2000; ++i) text += " the thing " + std::to_string(i);
  const auto expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) equal[t] += tokenizer.encode(text) == expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 5));
}

TEST(Tokenizer, InvalidUtf8IsNamedByByteAndLeavesTheOutputAlone) {
  const auto tokenizer = make(byte_tokenizer_json());
  Ids ids{7};
  try {
    tokenizer.encode_append("abc\xFFz", ids);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()), "byte 3 (0xFF) is not UTF-8; convert the text first");
  }
  EXPECT_EQ(ids, Ids{7});
}

TEST(Tokenizer, AByteWithoutTokenIsUnknownOrLeftOutAsInTokenizers) {
  auto file = byte_tokenizer_json();
  auto& vocab = file["model"]["vocab"];
  vocab.erase("z");
  EXPECT_EQ(make(file).encode("azb"), (Ids{'a', 'b'}));  // and the log warns of it
  file["model"]["unk_token"] = "nowhere";
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{'a', 'b'}));
  Ids ids{7};
  EXPECT_THROW(tokenizer.encode_append("a z", ids), DataError);
  EXPECT_EQ(ids, Ids{7});
  file["model"]["unk_token"] = "!";
  EXPECT_EQ(make(file).encode("azzb"), (Ids{'a', '!', '!', 'b'}));
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(make(file).encode("azzb"), (Ids{'a', '!', 'b'}));
}

TEST(Tokenizer, KeepsTheFileAndItsHash) {
  const auto text = byte_tokenizer_json().dump();
  const auto path = testing::TempDir() + "/athanor_tokenizer_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << text;
  const auto tokenizer = Tokenizer::load(path);
  std::filesystem::remove(path);
  EXPECT_EQ(tokenizer.file_bytes(), text);
  EXPECT_EQ(tokenizer.hash(), hash_hex(text));
  EXPECT_THROW(Tokenizer::load(path), DataError);
}

TEST(TokenizerJson, BrokenJsonIsNamedByByte) {
  const auto text = byte_tokenizer_json().dump();
  EXPECT_TRUE(complaint(text.substr(0, 100)).starts_with("t.json: not JSON at byte 101: "))
      << complaint(text.substr(0, 100));
  EXPECT_EQ(complaint(""), "t.json: an empty file; fetch or write the file again");
  EXPECT_TRUE(complaint("{\"a\": \"\xFF\"}").starts_with("t.json: not JSON at byte 8: "));
  EXPECT_EQ(complaint("[]"), "t.json: expected an object, found array");
}

TEST(TokenizerJson, WhatIsMissingOrUnknownIsNamedByPath) {
  const auto good = byte_tokenizer_json({"ab"});
  auto file = good;
  file.erase("model");
  EXPECT_EQ(complaint(file), "t.json: lacks \"model\"");
  file = good;
  file["model"].erase("merges");
  EXPECT_EQ(complaint(file), "t.json: model: lacks \"merges\"");
  file = good;
  file["model"]["type"] = "Unigram";
  EXPECT_EQ(complaint(file), "t.json: model.type: the model \"Unigram\" is not supported; BPE is");
  file = good;
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Precompiled"}}}}};
  EXPECT_TRUE(
      complaint(file).starts_with("t.json: normalizer.normalizers[0].type: the normalizer \"Precompiled\" is not"));
  file = good;
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "UnicodeScripts"}}}}};
  EXPECT_TRUE(complaint(file).starts_with(
      "t.json: pre_tokenizer.pretokenizers[0].type: the pre-tokenizer \"UnicodeScripts\" is not supported"));
  file = good;
  file["decoder"] = {{"type", "CTC"}};
  EXPECT_TRUE(complaint(file).starts_with("t.json: decoder.type: the decoder \"CTC\" is not supported"));
  file = good;
  file["model"]["dropout"] = 0.1;
  EXPECT_TRUE(complaint(file).starts_with("t.json: model.dropout: dropout makes ids random"));
  file = good;
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_TRUE(complaint(file).starts_with("t.json: pre_tokenizer.pattern.Regex: the pattern (a is not valid: "));
  file["pre_tokenizer"]["pattern"]["Regex"] = "[a&&b]";
  EXPECT_NE(complaint(file).find("intersections of classes are not supported"), std::string::npos);
}

TEST(TokenizerJson, MergesOfUnknownTokensAreNamedByIndex) {
  auto file = byte_tokenizer_json({"ab"});
  file["model"]["merges"].push_back("a Ġzz");
  EXPECT_EQ(complaint(file), "t.json: model.merges[1]: \"Ġzz\" is not in model.vocab");
  file["model"]["merges"][1] = "b b";
  EXPECT_EQ(complaint(file), "t.json: model.merges[1]: \"bb\" is not in model.vocab");
  file["model"]["merges"][1] = "b b b";
  EXPECT_TRUE(complaint(file).starts_with("t.json: model.merges[1]: expected two tokens with one space"));
  file["model"]["merges"][1] = json::array({"a"});
  EXPECT_EQ(complaint(file), "t.json: model.merges[1]: expected two tokens, found 1");
  file["model"]["merges"][1] = 5;
  EXPECT_EQ(complaint(file), "t.json: model.merges[1]: expected a string, found number");
}

TEST(TokenizerJson, IdsAreWholeSmallAndTakenOnce) {
  const auto good = byte_tokenizer_json({"ab"});
  auto file = good;
  file["model"]["vocab"]["ab"] = 4000000000u;
  EXPECT_EQ(complaint(file), "t.json: model.vocab.ab: 4000000000 is too large; expected at most 1000256");
  file["model"]["vocab"]["ab"] = -1;
  EXPECT_EQ(complaint(file), "t.json: model.vocab.ab: expected a whole number from 0 on, found -1");
  file["model"]["vocab"]["ab"] = 97;
  EXPECT_NE(complaint(file).find("the id 97 is \"a"), std::string::npos) << complaint(file);
  file = good;
  file["added_tokens"] = {added_token_json(999, "<x>")};
  EXPECT_NE(complaint(file).find("t.json: added_tokens[0].id: \"<x>\" has the id 999 here, but the next free one"),
            std::string::npos);
  file["added_tokens"] = {added_token_json(257, "<x>"), added_token_json(258, "<x>")};
  EXPECT_EQ(complaint(file), "t.json: added_tokens[1].content: \"<x>\" is there twice");
  file["added_tokens"] = {added_token_json(5, "ab")};
  EXPECT_NE(complaint(file).find("model.vocab gives it 256"), std::string::npos);
}

}  // namespace
}  // namespace athanor::tokenizer_test
