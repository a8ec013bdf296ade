// Rows: where they are looked for, and what is refused. The requests are compared with lm_eval's in tests/interop.

#include "tasks/task_set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "tasks/task_scores.h"

namespace athanor::tasks::task_set_test {
namespace {

using Texts = std::vector<std::string>;

class Rows : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    write("tasks/x.yaml",
          "task: x\noutput_type: multiple_choice\ntraining_split: train\ntest_split: test\ndoc_to_text: question\n"
          "doc_to_target: answer\ndoc_to_choice: ['no', 'yes']\nathanor: {data: rows, where: kind != 'z'}\n");
  }
  TaskSelection selection(int64_t fewshot = 0) {
    return {.names = {"x"}, .include_paths = {folder_ / "tasks"}, .data = folder_ / "data", .num_fewshot = fewshot};
  }
  Texts contexts(const TaskSelection& selection) {
    const auto set = TaskSet::load(selection);
    Texts contexts;
    TaskDocument document;
    for (const auto stream = set.documents(); stream->next(document);) contexts.push_back(document.requests[0].context);
    EXPECT_EQ(static_cast<int64_t>(contexts.size()), set.num_documents());
    return contexts;
  }
  std::string refused() {
    auto message = refusal<DataError>([&] { contexts(selection()); });
    for (size_t at = 0; (at = message.find(folder_.string() + "/")) != std::string::npos;)
      message.erase(at, folder_.string().size() + 1);
    return message;
  }
  static std::string row(const std::string& question, const std::string& answer = "1", const std::string& kind = "a") {
    return "{\"question\": \"" + question + "\", \"answer\": " + answer + ", \"kind\": \"" + kind + "\"}\n";
  }
};

TEST_F(Rows, TheFirstFileThatIsThereCounts) {
  write("data/rows.jsonl", row("bare"));
  EXPECT_EQ(contexts(selection()), Texts{"bare"});
  write("data/rows/test.json", "[" + row("folder") + "," + row("second") + "]");
  EXPECT_EQ(contexts(selection()), (Texts{"folder", "second"}));
  write("data/rows_test.jsonl", row("split"));
  EXPECT_EQ(contexts(selection()), Texts{"split"});
}

TEST_F(Rows, AStreamBeginsAnewAndTheConditionSelects) {
  write("data/rows.jsonl", row("a") + row("b", "0", "z") + row("c") + row("d", "0", "z"));
  const auto set = TaskSet::load(selection());
  for (int pass = 0; pass < 2; ++pass) {
    TaskDocument document;
    const auto stream = set.documents();
    ASSERT_TRUE(stream->next(document));
    ASSERT_TRUE(stream->next(document));
    EXPECT_EQ(document.requests[1].context, "c");
    EXPECT_EQ(document.requests[1].continuation, " yes");
    EXPECT_EQ(document.doc_id, 1);
    EXPECT_FALSE(stream->next(document));
    EXPECT_FALSE(stream->next(document));
  }
}

TEST_F(Rows, ExamplesAreOtherRowsThanTheDocument) {
  write("data/rows.jsonl", row("a") + row("b") + row("c"));
  for (const auto& context : contexts(selection(2))) {
    EXPECT_EQ(context.size(), std::string("a yes\n\nb yes\n\nc").size()) << context;
    for (const char c : {'a', 'b', 'c'}) EXPECT_NE(context.find(c), std::string::npos) << context;
  }
  EXPECT_SAYS(refusal<DataError>([&] { contexts(selection(3)); }),
              "3 few-shot examples are asked for, and one to spare, there are 3 rows; lower --fewshot");
  write("data/rows_train.jsonl", row("t"));
  EXPECT_EQ(contexts(selection(1)), (Texts{"t yes\n\na", "t yes\n\nb", "t yes\n\nc"}));
}

TEST_F(Rows, MissingFilesAreAnsweredWithWhatWasLookedForAndWhatIsThere) {
  EXPECT_SAYS(refused(), "--data data: no such folder");
  write("data/other.jsonl", row("a"));
  EXPECT_SAYS(refused(),
              "task x (x.yaml): no rows of the split test; looked for rows_test, rows/test, "
              "rows/test-00000-of-0000n.parquet and rows");
  EXPECT_SAYS(refused(), "which has other.jsonl");
}

TEST_F(Rows, AnEmptyTaskIsRefused) {
  write("data/rows.jsonl", "");
  EXPECT_EQ(refused(), "data/rows.jsonl has no rows");
  write("data/rows.jsonl", row("a", "1", "z"));
  EXPECT_SAYS(refused(), "no row of data/rows.jsonl is a document; athanor.where selects none");
}

TEST_F(Rows, ABadRowIsNamedByFileLineAndByte) {
  write("data/rows.jsonl", row("a") + "{\"question\": \n");
  EXPECT_SAYS(refused(), "data/rows.jsonl:2: no JSON at byte 14");
  write("data/rows.jsonl", row("a") + "\n[1]\n");
  EXPECT_EQ(refused(), "data/rows.jsonl:3: a row is an object with fields, this is a list");
  write("data/rows.jsonl", row("a") + row("1.5e3 12345678901234567890", "1, \"n\": -12345678901234567890"));
  EXPECT_EQ(refused(), "data/rows.jsonl:2: an integer needs more than 64 bits; write it as a text");
  write("data/rows.jsonl", row("a") + row("\xff"));
  EXPECT_EQ(refused(), "data/rows.jsonl:2: not UTF-8 at byte 15");
  write("data/rows.jsonl", row("a") + "{\"question\": \"b\", \"kind\": \"a\"}\n");
  EXPECT_EQ(refused(),
            "data/rows.jsonl:2: task x (x.yaml): doc_to_target is the field \"answer\", which is not there; the row "
            "has question, kind");
}

TEST_F(Rows, AnAnswerOutsideOfTheChoicesIsRefused) {
  write("data/rows.jsonl", row("a") + row("b", "2"));
  EXPECT_EQ(refused(), "data/rows.jsonl:2: task x (x.yaml): the answer 2 is none of the 2 choices");
  write("data/rows.jsonl", row("a") + row("b", "\"maybe\""));
  EXPECT_EQ(refused(), "data/rows.jsonl:2: task x (x.yaml): the answer 'maybe' is none of the 2 choices");
  write("data/rows.jsonl", row("a") + row("b", "-1"));
  EXPECT_SAYS(refused(), "the answer -1 is none");
  write("data/rows.jsonl", row("a") + row("b", "[0]"));
  EXPECT_SAYS(refused(), "the answer is [0], but that of the first document is no list");
}

TEST_F(Rows, AMisspelledFieldIsNoText) {
  write("data/rows.jsonl", "{\"questions\": \"a\", \"answer\": 1, \"kind\": \"a\"}\n");
  EXPECT_EQ(refused(),
            "data/rows.jsonl:1: task x (x.yaml): doc_to_text is \"question\", which is no field of the rows (did you "
            "mean \"questions\"?)");
}

TEST_F(Rows, ScoresOfAPartAreThoseOfTheDocumentsThatCame) {
  write("data/rows.jsonl", row("a") + row("b", "0") + row("c"));
  const auto set = TaskSet::load(selection());
  TaskScores scores(set);
  TaskDocument document;
  const auto stream = set.documents();
  const Answer low{-2, false, 1}, high{-1, true, 1};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(stream->next(document));
    scores.add(document, std::vector<Answer>{low, high});
  }
  const auto result = scores.results()["results"]["x"];
  EXPECT_EQ(result["sample_len"], 2);
  EXPECT_EQ(result["acc,none"], 0.5);
  EXPECT_EQ(result["acc_stderr,none"], 0.5);  // √(½ / 1) / √2
  EXPECT_EQ(scores.results()["n-samples"]["x"]["original"], 3);
  // The first of equal choices counts, and it is wrong.
  ASSERT_TRUE(stream->next(document));
  scores.add(document, std::vector<Answer>{low, low});
  EXPECT_EQ(scores.results()["results"]["x"]["acc,none"], 1.0 / 3);
}

}  // namespace
}  // namespace athanor::tasks::task_set_test
