// What files next to a tokenizer add to it. tests/interop/test_tokenizer_folders.py compares with transformers.
#include "tokenizer/companion_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/testing/folder_test.h"
#include "tokenizer/testing/tokenizer_json.h"
#include "tokenizer/tokenizer.h"

namespace athanor::companion_files_test {
namespace {

using nlohmann::json;
using Ids = std::vector<uint32_t>;

class Companions : public FolderTest {
 protected:
  void put(const std::string& name, const json& content) { write(name, content.dump()); }
  void SetUp() override {
    FolderTest::SetUp();
    put("tokenizer.json", byte_tokenizer_json());
  }
  Ids ids(const std::string& text) { return Tokenizer::load(folder_).encode(text); }
};

TEST_F(Companions, TokensOfTheDecoderAreTokensAlsoIfTheFileIsNamed) {
  put("tokenizer_config.json", {{"added_tokens_decoder", {{"256", {{"content", "<|x|>"}, {"special", true}}}}}});
  EXPECT_EQ(ids("a<|x|>b"), (Ids{97, 256, 98}));
  EXPECT_EQ(Tokenizer::load(folder_ / "tokenizer.json").encode("<|x|>"), Ids{256});
}

TEST_F(Companions, ACopyOfTheFileAloneHasTheTokens) {
  put("added_tokens.json", {{"<|x|>", 256}});
  const Tokenizer whole = Tokenizer::load(folder_);
  EXPECT_EQ(Tokenizer::parse(whole.file_bytes(), "copy").encode("<|x|>"), Ids{256});
}

TEST_F(Companions, WithoutANewTokenTheBytesOfTheFileStay) {
  put("tokenizer_config.json", {{"eos_token", nullptr}, {"model_max_length", 10}});
  EXPECT_EQ(Tokenizer::load(folder_).file_bytes(), byte_tokenizer_json().dump());
}

TEST_F(Companions, NamedAndExtraTokensAreAddedBehindThoseWithIds) {
  put("special_tokens_map.json", {{"eos_token", {{"content", "</s>"}}}, {"additional_special_tokens", {"<e>"}}});
  put("added_tokens.json", {{"<y>", 257}, {"<x>", 256}});
  EXPECT_EQ(ids("<x><y></s><e>"), (Ids{256, 257, 258, 259}));
  EXPECT_EQ(Tokenizer::load(folder_).eos_id(), 258u);
}

TEST_F(Companions, TheDecoderMakesTheOlderFilesSilent) {
  put("tokenizer_config.json", {{"added_tokens_decoder", {{"256", {{"content", "<x>"}}}}}});
  put("added_tokens.json", {{"<y>", 256}});
  EXPECT_EQ(ids("<x>"), Ids{256});
  EXPECT_EQ(ids("<y>"), (Ids{60, 121, 62}));
}

TEST_F(Companions, ANameMakesAPieceOfTheVocabularyAToken) {
  json tokenizer = byte_tokenizer_json({"ab"});
  put("tokenizer.json", tokenizer);
  put("tokenizer_config.json", {{"eos_token", "ab"}});
  const Tokenizer loaded = Tokenizer::load(folder_);
  EXPECT_EQ(loaded.eos_id(), 256u);
  EXPECT_EQ(loaded.special_ids(), Ids{256});
}

TEST_F(Companions, AnotherIdThanTheTokenGetsIsRefusedWithItsFile) {
  put("added_tokens.json", {{"<x>", 300}});
  EXPECT_SAYS(message_of<DataError>([&] { ids("a"); }), "added_tokens.json: \"<x>\" has the id 300");
}

TEST_F(Companions, AWrongMemberIsNamedByItsPath) {
  put("tokenizer_config.json", {{"added_tokens_decoder", {{"x", {{"content", "<x>"}}}}}});
  EXPECT_THROW(ids("a"), DataError);
  put("tokenizer_config.json", {{"added_tokens_decoder", {{"256", "<x>"}}}});
  EXPECT_THROW(ids("a"), DataError);
  put("tokenizer_config.json", {{"add_bos_token", "yes"}});
  EXPECT_THROW(ids("a"), DataError);
}

TEST_F(Companions, ATemplateWithATokenBeyondTheVocabularyIsRefused) {
  json tokenizer = byte_tokenizer_json();
  tokenizer["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 300}}, {"sep", {"</s>", 2}}};
  put("tokenizer.json", tokenizer);
  EXPECT_SAYS(message_of<DataError>([&] { Tokenizer::load(folder_).text_template(); }), "token 300, beyond its 256");
}

TEST_F(Companions, SpecialTokensCanBeReadAsText) {
  json tokenizer = byte_tokenizer_json();
  tokenizer["added_tokens"] = {added_token_json(256, "</s>"), added_token_json(257, "<n>", false)};
  put("tokenizer.json", tokenizer);
  const Tokenizer loaded = Tokenizer::load(folder_);
  EXPECT_EQ(loaded.encode("</s><n>", SpecialText::kIsToken), (Ids{256, 257}));
  EXPECT_EQ(loaded.encode("</s><n>", SpecialText::kIsText), (Ids{60, 47, 115, 62, 257}));
}

}  // namespace
}  // namespace athanor::companion_files_test
