#include "data/token_stream.h"

#include <cstring>

#include "data/test_data.h"

namespace athanor {
namespace {

class Stream : public DataTest {
 protected:
  // All tokens that `stream` holds, copied `at_once` at a time.
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
    TokenStream stream(folder_ / "tokens", item_bytes);
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
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tokens")) << "the file goes with the stream";
}

TEST_F(Stream, NothingWrittenIsAnEmptyStream) {
  TokenStream stream(folder_ / "tokens", 2);
  stream.finish();
  EXPECT_EQ(stream.num_tokens(), 0);
}

}  // namespace
}  // namespace athanor
