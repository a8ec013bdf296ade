#include "documents/zstd_frame.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include "base/testing/folder_test.h"
#include "documents/testing/compressed.h"

namespace athanor::zstd_frame_test {
namespace {

std::string compressed(size_t num_bytes, int window_log, bool with_size) {
  const std::string text(num_bytes, 'x');
  std::string out(ZSTD_compressBound(num_bytes), '\0');
  const auto context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, with_size);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), num_bytes));
  ZSTD_freeCCtx(context);
  return out;
}

TEST(ZstdFrame, TheWindowIsTheOneThatTheLibraryWrote) {
  EXPECT_EQ(parse_zstd_frame(compressed(300'000, 17, true)).window, uint64_t{1} << 17);
  for (const size_t num_bytes : {200u, 1000u, 100'000u}) {
    EXPECT_EQ(parse_zstd_frame(compressed(num_bytes, 20, true)).window, num_bytes) << "one segment";
  }
  EXPECT_EQ(parse_zstd_frame(zstd_frame("a", 21 << 3)).window, uint64_t{1} << 31);
  EXPECT_EQ(parse_zstd_frame(zstd_frame("a", (21 << 3) + 1)).window, (uint64_t{1} << 31) + (uint64_t{1} << 28));
}

class ZstdFrameFile : public FolderTest {};

TEST_F(ZstdFrameFile, TheWindowOfAFileIsFoundBehindFramesWithoutContent) {
  using namespace std::string_literals;
  const auto skippable = "\x50\x2A\x4D\x18\x03\0\0\0abc"s;
  EXPECT_EQ(first_zstd_window(write("a.zst", skippable + skippable + zstd_frame("a", 20 << 3))), uint64_t{1} << 30);
  for (const auto& bytes : {""s, skippable, "\x50\x2A\x4D\x18\xFF\xFF\xFF\xFF"s, "text"s}) {
    EXPECT_EQ(first_zstd_window(write("a.zst", bytes)), 0u);
  }
  EXPECT_EQ(first_zstd_window(folder_ / "missing"), 0u);
}

TEST(ZstdFrame, TheDictionaryIsNamed) {
  EXPECT_EQ(parse_zstd_frame(zstd_frame("a", 0, 200)).dictionary_id, 200u);
  EXPECT_EQ(parse_zstd_frame(compressed(1000, 20, true)).dictionary_id, 0u);
}

TEST(ZstdFrame, BytesThatAreNoWholeHeaderHaveNone) {
  const auto frame = zstd_frame("a", 21 << 3, 3);
  for (size_t size = 0; size < 7; ++size) EXPECT_EQ(parse_zstd_frame(frame.substr(0, size)).window, 0u) << size;
  EXPECT_EQ(parse_zstd_frame("{\"text\": 1}").window, 0u);
}

}  // namespace
}  // namespace athanor::zstd_frame_test
