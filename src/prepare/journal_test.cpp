#include <algorithm>
#include <vector>

#include "prepare/journal.h"

#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"

namespace athanor::journal_test {
namespace {

using nlohmann::json;

class JournalFile : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    file_ = folder_ / "journal";
    Journal journal(file_);
    for (int i = 0; i < 5; ++i)
      journal.append({{"n", i}, {"text", std::string(static_cast<size_t>(i), 'x') + "\n\xFF"}});
  }
  // Returns {numbers, whether the whole journal is intact}.
  std::pair<std::vector<int>, bool> read() const {
    std::vector<int> numbers;
    const bool whole = Journal::read(file_, [&](const json& line) {
      numbers.push_back(line.at("n").get<int>());
      return true;
    });
    return {numbers, whole};
  }

  std::filesystem::path file_;
};

TEST_F(JournalFile, ReadsBackWhatWasAppended) {
  EXPECT_EQ(read(), std::pair(std::vector<int>({0, 1, 2, 3, 4}), true));
  Journal(file_).append({{"n", 5}});
  EXPECT_EQ(read().first.size(), 6u);
}

TEST_F(JournalFile, OneThatIsNotThereHasNoLines) {
  EXPECT_TRUE(Journal::read(folder_ / "none", [](const json&) { return true; }));
}

TEST_F(JournalFile, CutAnywhereItGivesTheWholeLinesBeforeTheCut) {
  const auto bytes = read_file(file_);
  for (size_t length = 0; length < bytes.size(); length += 3) {
    write("journal", bytes.substr(0, length));
    const auto lines = static_cast<size_t>(std::count(bytes.begin(), bytes.begin() + static_cast<long>(length), '\n'));
    const auto [numbers, whole] = read();
    EXPECT_EQ(numbers.size(), lines);
    EXPECT_EQ(whole, length == 0 || bytes[length - 1] == '\n');
  }
}

TEST_F(JournalFile, ADamagedByteEndsItBeforeItsLine) {
  const auto bytes = read_file(file_);
  for (size_t at = 0; at < bytes.size(); at += 5) {
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write("journal", damaged);
    const auto lines = std::count(bytes.begin(), bytes.begin() + static_cast<long>(at), '\n');
    const auto [numbers, whole] = read();
    EXPECT_EQ(numbers.size(), static_cast<size_t>(lines)) << "byte " << at;
    EXPECT_FALSE(whole);
  }
}

TEST_F(JournalFile, RewritingKeepsTheChosenLines) {
  write("journal", read_file(file_) + "torn");
  Journal::rewrite(file_, [](const json& line) { return line.at("n") != 2; });
  EXPECT_EQ(read(), std::pair(std::vector<int>({0, 1, 3, 4}), true));
}

}  // namespace
}  // namespace athanor::journal_test
