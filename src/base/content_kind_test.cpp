#include "base/content_kind.h"

#include <gtest/gtest.h>

namespace athanor::content_kind_test {
namespace {

using namespace std::string_view_literals;

TEST(ContentKind, FilesAreRecognisedByTheirFirstBytes) {
  EXPECT_EQ(recognise_content("version https://git-lfs.github.com/spec/v1\noid sha256:00"), ContentKind::kLfsPointer);
  EXPECT_EQ(recognise_content("\x1F\x8B\x08\0"sv), ContentKind::kGzip);
  EXPECT_EQ(recognise_content("\x28\xB5\x2F\xFD\0"sv), ContentKind::kZstd);
  EXPECT_EQ(recognise_content("\x5C\x2A\x4D\x18\x04\0\0\0"sv), ContentKind::kZstd) << "a frame without content";
  EXPECT_EQ(recognise_content("\xFD\x37zXZ\0"sv), ContentKind::kXz);
  EXPECT_EQ(recognise_content("BZh9\x31\x41\x59\x26\x53\x59"sv), ContentKind::kBzip2);
  EXPECT_EQ(recognise_content("PAR1\x15\x04"sv), ContentKind::kParquet);
  EXPECT_EQ(recognise_content(std::string(257, '\0') + "ustar\0"), ContentKind::kTar);
  EXPECT_EQ(recognise_content("\xFF\xFE{\0"sv), ContentKind::kUtf16);
  EXPECT_EQ(recognise_content("\n <!DOCTYPE HTML>"), ContentKind::kHtml);
  EXPECT_EQ(recognise_content("<html lang=en>"), ContentKind::kHtml);
}

TEST(ContentKind, TextsAndUnknownBytesAreNoneOfThem) {
  for (const auto bytes : {""sv, "{\"text\": 1}"sv, "version 2"sv, "BZh9 is a text"sv, "<p>"sv, "PAR"sv, "\x1F"sv}) {
    EXPECT_EQ(recognise_content(bytes), ContentKind::kUnknown) << bytes;
  }
}

TEST(ContentKind, ATextIsKnownByWhatItDoesNotHave) {
  EXPECT_TRUE(looks_like_text("{\"text\":\t\"a\"}\r\n"));
  EXPECT_TRUE(looks_like_text("caf\xC3")) << "cut inside a character";
  for (const auto bytes : {""sv, "a\0b"sv, "\x1F\x8B"sv, "\xFF"sv, "a\xFF and more"sv, "\x28\xB5\x2F"sv})
    EXPECT_FALSE(looks_like_text(bytes));
}

}  // namespace
}  // namespace athanor::content_kind_test
