#include "record/step_table.h"

#include <cmath>

#include "base/testing/folder_test.h"

namespace athanor::step_table_test {
namespace {

class StepTableTest : public FolderTest {
 protected:
  StepTable read(const std::string& text, const std::vector<std::string>& fields) {
    write_file_atomically(folder_ / "metrics.jsonl", text);
    return read_step_table(folder_ / "metrics.jsonl", fields);
  }
};

TEST_F(StepTableTest, ALineThatIsStillBeingWrittenIsNotRead) {
  const auto table = read("{\"step\":1,\"loss\":8}\n{\"step\":2,\"loss\":7}\n{\"step\":3,\"lo", {"loss"});
  EXPECT_EQ(table.steps, (std::vector<double>{1, 2}));
  EXPECT_EQ(table.columns[0], (std::vector<double>{8, 7}));
  EXPECT_EQ(table.num_damaged, 0u);
}

TEST_F(StepTableTest, LinesThatAreNoStepAreCountedAndLeftOut) {
  const auto table = read(
      "{\"step\":1,\"loss\":8}\n{\"step\":2,\"l{\"step\":2\n[]\n{\"loss\":3}\n{\"step\":4,\"loss\":7}\n", {"loss"});
  EXPECT_EQ(table.steps, (std::vector<double>{1, 4}));
  EXPECT_EQ(table.num_damaged, 3u);
}

TEST_F(StepTableTest, AStepThatOccursAgainSupersedesTheLinesFromItOn) {
  const auto table =
      read("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n{\"step\":3,\"a\":3}\n{\"step\":2,\"a\":20}\n", {"a"});
  EXPECT_EQ(table.steps, (std::vector<double>{1, 2}));
  EXPECT_EQ(table.columns[0], (std::vector<double>{1, 20}));
}

TEST_F(StepTableTest, MembersAndItemsAreNamedWithDotsAlsoIfANameHasDots) {
  const auto table = read("{\"step\":1,\"a\":[5,6],\"b\":{\"my.source\":{\"c\":7}},\"text\":\"x\"}\n",
                          {"a.1", "b.my.source.c", "a", "text", "a.1", "a.2", "step"});
  EXPECT_EQ(table.columns[0][0], 6);
  EXPECT_EQ(table.columns[1][0], 7);
  EXPECT_TRUE(std::isnan(table.columns[2][0])) << "a list is no number";
  EXPECT_TRUE(std::isnan(table.columns[3][0])) << "a text is no number";
  EXPECT_EQ(table.columns[4][0], 6) << "a field that is asked for twice";
  EXPECT_TRUE(std::isnan(table.columns[5][0]));
  EXPECT_EQ(table.columns[6][0], 1);
}

TEST_F(StepTableTest, WhatWasNotFiniteIsNotMissing) {
  const auto table = read("{\"step\":1,\"loss\":null}\n{\"step\":2}\n", {"loss"});
  EXPECT_TRUE(std::isinf(table.columns[0][0]));
  EXPECT_TRUE(std::isnan(table.columns[0][1]));
}

TEST_F(StepTableTest, LinesLongerThanABlockAndAcrossBlocksAreRead) {
  std::string text;
  for (int step = 1; step <= 30; ++step)
    text += "{\"pad\":\"" + std::string(step == 7 ? 5'000'000 : 300'000, 'x') + "\",\"step\":" + std::to_string(step) +
            "}\n";
  const auto table = read(text, {});
  EXPECT_EQ(table.steps.size(), 30u);
  EXPECT_EQ(table.steps.back(), 30);
}

TEST_F(StepTableTest, FieldsAreListedInTheOrderOfTheirOccurrence) {
  read("{\"step\":1,\"name\":\"x\",\"list\":[1,2,3],\"in\":{\"a\":1}}\n{\"step\":2,\"late\":3,\"one\":[1]}\n", {});
  EXPECT_EQ(list_numeric_fields(folder_ / "metrics.jsonl"),
            (std::vector<std::string>{"step", "list.0 to list.2", "in.a", "late", "one.0"}));
}

}  // namespace
}  // namespace athanor::step_table_test
