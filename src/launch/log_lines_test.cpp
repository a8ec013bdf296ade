#include "launch/log_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/log_times.h"
#include "launch/trigger_words.h"

namespace athanor::launch::log_lines_test {
namespace {

struct Line {
  uint64_t number, offset;
  std::string text;
  bool operator==(const Line&) const = default;
};

class LogLines : public testing::Test {
 protected:
  std::vector<Line> read(const std::string& text) {
    Faults faults;
    size_ = read_log(bytes_of(text), TriggerWords({"\x1b[", "\x1b]", "fault"}), faults);
    EXPECT_EQ(faults.seen, text.size() - faults.skipped);
    return faults.lines;
  }

  // Reads that bring less than what is asked for are those of pipes.
  static ReadLog bytes_of(const std::string& text) {
    return [&text, at = size_t{0}](char* out, size_t capacity) mutable {
      const size_t size = text.copy(out, std::min<size_t>(capacity, 777'777), at);
      at += size;
      return size;
    };
  }

  struct Faults : LogSink {
    std::vector<Line> lines;
    uint64_t seen = 0, skipped = 0, end = 0;
    void take(const LogLine& line) override {
      if (line.text.find("fault") != line.text.npos)
        lines.push_back({line.number, line.offset, std::string(line.text)});
    }
    void see_piece(std::string_view piece, uint64_t offset) override {
      EXPECT_GE(offset, end);
      skipped += offset - end;
      seen += piece.size();
      end = offset + piece.size();
    }
  };

  LogSize size_;
};

TEST_F(LogLines, LinesWithAWordComeWithTheirNumbersAndPlaces) {
  EXPECT_EQ(read("one\na fault\n\nanother fault, fault"),
            (std::vector<Line>{{2, 4, "a fault"}, {4, 13, "another fault, fault"}}));
  EXPECT_EQ(size_.lines, 4U);
  EXPECT_EQ(size_.bytes, 33U);
}

TEST_F(LogLines, ARedrawnLineIsSeveralWithOneNumber) {
  EXPECT_EQ(read("10%\r20% fault\r30%\r\nfault\r\n"), (std::vector<Line>{{1, 4, "20% fault"}, {2, 19, "fault"}}));
}

TEST_F(LogLines, ColoursInsideAWordDoNotHideIt) {
  EXPECT_EQ(read("a \x1b[1;31mfa\x1b[0mult\n\x1b]0;title\x07"
                 "fault\x1b[K\n"),
            (std::vector<Line>{{1, 0, "a fault"}, {2, 19, "fault"}}));
}

TEST_F(LogLines, ALongLineIsCutAndTheNextOneIsWhole) {
  const std::string fill(3 << 20, 'x');
  const auto lines = read("fault " + fill + " fault\nfault\n");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text.size(), kLongestLine);
  EXPECT_EQ(lines[1], (Line{2, fill.size() + 13, "fault"}));
}

TEST_F(LogLines, AWordAtEveryBoundaryOfABlockIsFound) {
  for (size_t before = (1 << 20) - 8; before < (1 << 20) + 3; ++before) {
    const auto lines = read(std::string(before - 1, '\n') + "\n" + "a fault b\n");
    ASSERT_EQ(lines.size(), 1U) << before;
    EXPECT_EQ(lines[0], (Line{before + 1, before, "a fault b"}));
  }
}

TEST_F(LogLines, BytesThatAreNoTextAreHarmless) {
  std::string rubbish;
  for (uint32_t i = 0; i < 300'000; ++i) rubbish += static_cast<char>(i * 7919 >> 3);
  const auto lines = read(rubbish + "\nfault\xff\x00\n");
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().text.substr(0, 5), "fault");
}

TEST_F(LogLines, AnUnfinishedEscapeSequenceEndsWithItsLine) {
  EXPECT_EQ(without_escapes("a\x1b"), "a");
  EXPECT_EQ(without_escapes("a\x1b[12"), "a");
  EXPECT_EQ(without_escapes("a\x1b]title"), "a");
  EXPECT_EQ(without_escapes("a\x1b(Bb"), "aBb");
}

std::optional<double> seconds_after(const std::string& log, uint64_t from) {
  static const SignatureSet signatures = SignatureSet::load();
  LogTimes times(signatures);
  times.see(log, 0, from);
  return times.seconds_after();
}

TEST(LogTimes, TheTimeAfterAPlaceIsThatOfTheLastLineWithOne) {
  const std::string log =
      "2026-01-05 10:00:00 begin\n2026-01-05 11:00:00 step\nno time\n2026-01-05 13:00:30 alive\nend\n";
  EXPECT_EQ(seconds_after(log, 26), 7230);
  EXPECT_EQ(seconds_after(log, 0), 10830);
  EXPECT_EQ(seconds_after(log, 85), std::nullopt);
  EXPECT_EQ(time_in("9999-99 2026-1-1 00:00:00"), std::nullopt);
}

TEST(LogTimes, TheTimesOfTheProgramCountAndNotThoseOfWhatPassesItsLinesOn) {
  const std::string own =
      "2026-01-05T09:00:00Z step: 5  loss: 2.5\n2026-01-05T09:00:00Z [2026-01-05 10:00:00] alive\n"
      "2026-01-05T09:00:01Z [2026-01-05 12:00:00] alive\n";
  EXPECT_EQ(seconds_after(own, 0), 7200);
  EXPECT_EQ(seconds_after("2026-01-05T09:00:00Z step: 5  loss: 2.5\n2026-01-05T09:00:07Z end\n", 0), 7);
}

TEST(LogTimes, ATimeIsFoundOverPieces) {
  static const SignatureSet signatures = SignatureSet::load();
  LogTimes times(signatures);
  times.see("step: 5  loss: 2.5\n", 0, 0);
  times.see("2026-01-05 10:00:00 alive\n", 19, 0);
  times.see("end\n2026-01-05 10:00:09 alive\n", 45, 0);
  EXPECT_EQ(times.seconds_after(), 9);
}

}  // namespace
}  // namespace athanor::launch::log_lines_test
