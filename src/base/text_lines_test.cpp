#include "base/text_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::text_lines_test {
namespace {

using Lines = std::vector<std::string>;

class TextLinesTest : public FolderTest {
 protected:
  Lines lines_of(const std::string& bytes) {
    const auto file = write("lines.txt", bytes);
    TextLines reader("lines.txt", ::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    Lines lines;
    while (const auto line = reader.next()) lines.push_back(*line);
    EXPECT_TRUE(reader.at_end());
    EXPECT_EQ(reader.number(), static_cast<int64_t>(lines.size()));
    return lines;
  }
};

TEST_F(TextLinesTest, AMarkBeforeTheFirstLineAndCarriageReturnsAreNoText) {
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"
                     "AB\r\nC\rD\r\n\n\xEF\xBB\xBF"),
            (Lines{"AB", "C\rD", "", "\xEF\xBB\xBF"}));
  EXPECT_EQ(lines_of("a\r"), Lines{"a"});
  EXPECT_EQ(lines_of("\n"), Lines{""});
  EXPECT_EQ(lines_of(""), Lines{});
}

TEST_F(TextLinesTest, ALineMayBeLongerThanWhatIsReadAtOnce) {
  Lines lines;
  std::string bytes;
  for (size_t length : {100'000u, 0u, 65'536u, 3u, 200'000u}) {
    lines.emplace_back(length, 'x');
    bytes += lines.back() + "\n";
  }
  EXPECT_EQ(lines_of(bytes), lines);
}

TEST_F(TextLinesTest, WithoutWaitingALineIsGivenWhenItIsWhole) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  TextLines reader("a pipe", ends[0]);
  EXPECT_EQ(reader.next(nullptr), std::nullopt);
  ASSERT_EQ(::write(ends[1], "on", 2), 2);
  EXPECT_EQ(reader.next(nullptr), std::nullopt);
  ASSERT_EQ(::write(ends[1], "e\nt", 3), 3);
  EXPECT_EQ(reader.next(nullptr), "one");
  EXPECT_FALSE(reader.at_end());
  ::close(ends[1]);
  EXPECT_EQ(reader.next(nullptr), "t");
  EXPECT_TRUE(reader.at_end());
}

TEST_F(TextLinesTest, AFileThatIsNoTextIsNamed) {
  EXPECT_SAYS(message_of<DataError>([&] { lines_of("version https://git-lfs.github.com/spec/v1\noid\n"); }),
              "lines.txt is a pointer of Git LFS");
  EXPECT_SAYS(message_of<DataError>([&] { lines_of("\x1F\x8B\x08 and more"); }), "lines.txt is compressed by gzip");
}

}  // namespace
}  // namespace athanor::text_lines_test
