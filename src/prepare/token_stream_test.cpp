#include "prepare/token_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/testing/folder_test.h"

namespace athanor::token_stream_test {
namespace {

class Stream : public FolderTest {
 protected:
  // Returns all tokens of `stream`, copied `at_once` at a time.
  template <class Item>
  static std::vector<Item> copy(const TokenStream& stream, int64_t at_once) {
    std::vector<Item> tokens(static_cast<size_t>(stream.num_tokens()));
    for (int64_t first = 0; first < stream.num_tokens(); first += at_once) {
      const int64_t count = std::min(at_once, stream.num_tokens() - first);
      stream.copy(first, count, reinterpret_cast<std::byte*>(tokens.data() + first));
    }
    return tokens;
  }
};

TEST_F(Stream, ChunksStandInTheOrderOfTheirKeysNotOfTheirComing) {
  for (const int item_bytes : {2, 4}) {
    TokenStream stream(folder_ / fmt::format("tokens{}", item_bytes), item_bytes);
    stream.append(1, 1, std::vector<uint32_t>{8, 9});
    stream.append(0, 2, std::vector<uint32_t>{4, 5});
    stream.append(1, 0, std::vector<uint32_t>{6, 7});
    stream.append(0, 10, {});
    stream.append(0, 0, std::vector<uint32_t>{0, 1, 2});
    stream.append(0, 1, std::vector<uint32_t>{3});
    stream.finish();
    for (const int64_t at_once : {1, 3, 10}) {
      const std::vector<uint16_t> expected{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
      if (item_bytes == 2) {
        EXPECT_EQ(copy<uint16_t>(stream, at_once), expected);
      } else {
        EXPECT_EQ(copy<uint32_t>(stream, at_once), std::vector<uint32_t>(expected.begin(), expected.end()));
      }
    }
  }
}

TEST_F(Stream, AnotherProcessAdoptsChunksAndAppendsAfterThem) {
  const auto file = folder_ / "tokens";
  TokenStream::Place first, second;
  {
    TokenStream stream(file, 2);
    first = stream.append(0, 1, std::vector<uint32_t>{4, 5});
    second = stream.append(0, 0, std::vector<uint32_t>{1, 2, 3});
  }
  TokenStream stream(file, 2);
  EXPECT_TRUE(stream.is_whole(2, first));
  EXPECT_TRUE(stream.is_whole(3, second));
  EXPECT_FALSE(stream.is_whole(3, first));
  EXPECT_FALSE(stream.is_whole(3, {4, second.hash + 1}));
  EXPECT_FALSE(stream.is_whole(4, second)) << "beyond the end";
  stream.adopt(0, 1, 2, first);
  stream.adopt(0, 0, 3, second);
  stream.append(1, 0, std::vector<uint32_t>{6});
  stream.finish();
  EXPECT_EQ(copy<uint16_t>(stream, 4), (std::vector<uint16_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(stream.has_spill());
  stream.remove();
  EXPECT_FALSE(stream.has_spill());
  TokenStream later(file, 2);
  EXPECT_TRUE(later.has_spill()) << "an empty one has all of its no chunks";
  later.adopt(0, 0, 3, second);
  EXPECT_FALSE(later.has_spill());
}

TEST_F(Stream, TheDigestIsOfTheTokensAndTheirOrder) {
  const auto digest = [&](const std::vector<std::vector<uint32_t>>& chunks) {
    TokenStream stream(folder_ / "tokens", 2);
    for (size_t i = 0; i < chunks.size(); ++i) stream.append(0, static_cast<uint32_t>(i), chunks[i]);
    stream.finish();
    return stream.digest();
  };
  EXPECT_EQ(digest({{1, 2}, {3}}), digest({{1, 2}, {3}}));
  EXPECT_NE(digest({{1, 2}, {3}}), digest({{3}, {1, 2}}));
  EXPECT_NE(digest({{1, 2}, {3}}), digest({{1, 2}, {4}}));
}

TEST_F(Stream, NothingWrittenIsAnEmptyStream) {
  TokenStream stream(folder_ / "tokens", 2);
  stream.finish();
  EXPECT_EQ(stream.num_tokens(), 0);
}

}  // namespace
}  // namespace athanor::token_stream_test
