#include "checkpoint/read_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace athanor::read_ahead_test {
namespace {

constexpr uint64_t kAsk = ReadAhead::kAskBytes, kAhead = ReadAhead::kAheadBytes;

struct Asked {
  std::string file;
  uint64_t begin, end;
  bool operator==(const Asked&) const = default;
};

TEST(ReadAhead, EachByteIsAskedForOnceInTheOrderOfReadingAndNeverTooEarly) {
  const FileTable files{{"a", 1000 * kAsk}, {"b", 1000 * kAsk}};
  const auto &a = *files.find("a"), &b = *files.find("b");
  std::vector<Asked> asked;
  uint64_t num_asked = 0, num_read = 0;
  ReadAhead ahead([&](const auto& file, uint64_t begin, uint64_t end) {
    EXPECT_LE(end - begin, kAsk);
    if (!asked.empty() && asked.back().file == file.first && asked.back().end == begin) {
      asked.back().end = end;
    } else {
      asked.push_back({file.first, begin, end});
    }
    num_asked += end - begin;
  });
  ahead.add(a, 100, 3 * kAsk);
  ahead.add(a, 3 * kAsk, 20 * kAsk + 1);  // continues
  ahead.add(a, 30 * kAsk, 30 * kAsk);     // nothing
  ahead.add(a, 40 * kAsk, 41 * kAsk);     // behind a gap, which is not read
  for (uint64_t i = 0; i < 1000; ++i) ahead.add(b, i * 5000, (i + 1) * 5000);
  const uint64_t all = 20 * kAsk + 1 - 100 + kAsk + 5'000'000;
  for (ahead.note_read(0); num_read < all; num_read += 999'999) {
    EXPECT_LE(num_asked, num_read + kAhead);
    EXPECT_GE(num_asked, std::min(all, num_read + kAhead - 2 * kAsk));
    ahead.note_read(999'999);
  }
  const std::vector<Asked> expected = {{"a", 100, 20 * kAsk + 1}, {"a", 40 * kAsk, 41 * kAsk}, {"b", 0, 5'000'000}};
  EXPECT_EQ(asked, expected);
}

TEST(ReadAhead, ShortRangesShareOneRequestIfTheyFollowEachOther) {
  const FileTable files{{"a", kAsk}};
  int calls = 0;
  ReadAhead ahead([&](const auto&, uint64_t, uint64_t) { ++calls; });
  for (uint64_t i = 0; i < 1000; ++i) ahead.add(*files.find("a"), i * 4, (i + 1) * 4);
  ahead.note_read(0);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace athanor::read_ahead_test
