// Task files: what is refused, in which words, and what a selection of names means.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "tasks/task_index.h"
#include "tasks/yaml_file.h"

namespace athanor::tasks::task_files_test {
namespace {

using Names = std::vector<std::string>;
using Json = nlohmann::ordered_json;

const std::string kRest =
    "output_type: multiple_choice\ntest_split: test\ndoc_to_text: question\ndoc_to_target: answer\ndoc_to_choice: [a, "
    "b]\n";

class TaskFiles : public FolderTest {
 protected:
  SelectedTasks select(const Names& names) { return TaskIndex({folder_}).select(names); }
  Names names_of(const Names& names) {
    Names found;
    for (const auto& task : select(names).tasks) found.push_back(task.name);
    return found;
  }
  std::string refused(const std::string& yaml) {
    write("x.yaml", yaml);
    auto message = message_of<Error>([&] { select({"x"}); });
    const auto at = message.find(folder_.string());
    return at == std::string::npos ? message : message.replace(at, folder_.string().size() + 1, "");
  }
};

TEST_F(TaskFiles, AnUnknownKeyIsNamedWithFileLineAndTheNearestKey) {
  EXPECT_EQ(refused("task: x\n" + kRest + "doc_to_txt: a\n"),
            "x.yaml:7: doc_to_txt is an unknown key (did you mean \"doc_to_text\"?)");
  EXPECT_EQ(refused("task: x\n" + kRest + "fewshot_config:\n  sampler: first\n"),
            "x.yaml:8: fewshot_config.sampler is first (did you mean \"first_n\"?); there are default and first_n");
  EXPECT_EQ(refused("task: x\n" + kRest + "athanor: {dta: rows}\n"),
            "x.yaml:7: athanor.dta is an unknown key (did you mean \"data\"?)");
  EXPECT_EQ(refused("task: x\n" + kRest + "metric_list:\n  - metric: acc_nrom\n"),
            "x.yaml:7: metric_list: multiple_choice has no metric acc_nrom (did you mean \"acc_norm\"?); it has acc, "
            "acc_norm, acc_bytes, "
            "acc_mutual_info, exact_match, f1, mcc, brier_score");
}

TEST_F(TaskFiles, PythonFunctionsAreRefusedWithWhatToWriteInstead) {
  EXPECT_EQ(refused("task: x\n" + kRest + "process_docs: !function utils.process_docs\n"),
            "x.yaml:7: process_docs is the Python function utils.process_docs; write instead a mapping of fields to "
            "templates, such as "
            "`process_docs: {query: \"{{ctx.strip()}}\"}` (docs/tasks.md)");
  EXPECT_SAYS(refused("task: x\noutput_type: multiple_choice\ntest_split: test\ndoc_to_text: !function "
                      "u.f\ndoc_to_target: a\ndoc_to_choice: b\n"),
              "x.yaml:4: doc_to_text is the Python function u.f; write a template that gives the same");
  EXPECT_SAYS(refused("task: x\n" + kRest + "metric_list:\n  - metric: !function u.f\n"),
              "metric is the Python function u.f");
  EXPECT_SAYS(refused("task: x\n" + kRest + "process_results: [a]\n"), "process_results is code that scores");
}

TEST_F(TaskFiles, APythonFunctionThatNoTemplateReplacesIsNamedWithWhatWouldServe) {
  EXPECT_SAYS(
      refused("task: x\n" + kRest + "metric_list:\n  - metric: acc\n    aggregation: !function u.weighted_f1\n"),
      "x.yaml:9: metric_list.aggregation is the Python function u.weighted_f1; code that aggregates scores cannot "
      "run here: leave the key out for the metric's own aggregation, or name another metric");
  EXPECT_SAYS(
      refused("task: x\nprocess_docs: !function u.docs\n" + kRest + "metric_list:\n  - metric: !function u.f\n"),
      "metric_list.metric is the Python function u.f; code that scores cannot run here: name a metric, such as acc");
  EXPECT_SAYS(
      refused("task: x\n" + kRest + "process_results: !function u.f\n"),
      "process_results is the Python function u.f; code that scores cannot run here: name metrics in metric_list");
  EXPECT_SAYS(refused("task: x\nclass: !function task.Squad\n"),
              "class is the Python function task.Squad; tasks that are");
  EXPECT_SAYS(refused("task: x\ncustom_dataset: !function u.rows\n" + kRest),
              "custom_dataset is the Python function u.rows; write the rows that it gives to a file");
  EXPECT_SAYS(refused("task: x\n" + kRest +
                      "filter_list:\n  - name: a\n    filter: [{function: custom, filter_fn: "
                      "!function u.strip}]\n"),
              "filter_list has the Python function u.strip; code that filters cannot run here");
  EXPECT_SAYS(refused("task: x\n" + kRest + "task_alias: !function u.f\n"), "u.f; write the value itself");
}

TEST_F(TaskFiles, KeysOfAMetricThatLmEvalDoesNotUseForScoresHaveNoEffect) {
  write("x.yaml",
        "task: x\n" + kRest + "metric_list:\n  - metric: acc\n    weight_by_size: true\n    ignore_case: true\n");
  EXPECT_EQ(select({"x"}).tasks.at(0).metrics.size(), 1u);
  EXPECT_SAYS(refused("task: x\n" + kRest + "metric_list:\n  - metric: acc\n    weigth_by_size: true\n"),
              "weigth_by_size is an unknown key (did you mean \"weight_by_size\"?)");
}

TEST_F(TaskFiles, OfRepeatedKeysTheLastCountsAndIsToldOnce) {
  write("base", "test_split: a\ntest_split: test\n");
  write("x.yaml", "include: base\ntask: x\n" + kRest + "metric_list:\n  - metric: acc\n    metric: acc_norm\n");
  write("y.yaml", "include: base\ntask: y\n" + kRest);
  testing::internal::CaptureStderr();
  const auto tasks = select({"x", "y"}).tasks;
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(tasks.at(0).metrics.at(0).name, "acc_norm");
  const auto message = (folder_ / "base").string() + ":2: the key test_split is there before; this one counts";
  EXPECT_SAYS(said, message);
  EXPECT_EQ(said.find(message, said.find(message) + 1), std::string::npos) << said;
  EXPECT_SAYS(said, "x.yaml:10: the key metric is there before");
}

TEST_F(TaskFiles, EscapesOfYamlAreThoseOfPyYaml) {
  const auto value = [](const std::string& word) { return parse_yaml("k: " + word, "f")[0].value["k"]; };
  EXPECT_EQ(value(R"("a\_b\Nc\Ld\Pe")"), "a\u00A0b\u0085c\u2028d\u2029e");
  EXPECT_EQ(value(R"("é\_\_é\\_\x41\u00e9\U0001F600\e\0")"), std::string("é\u00A0\u00A0é\\_Aé😀\x1B\0", 19));
  EXPECT_EQ(value(R"('a\_b')"), "a\\_b");
  EXPECT_EQ(parse_yaml(R"("k\_": 1)", "f")[0].value["k\u00A0"], 1);
  EXPECT_SAYS(message_of<ConfigError>([&] { parse_yaml("a: 1\nb: caf\xE9\n", "f"); }),
              "f:2: not UTF-8 at byte 12 of the file; convert it to UTF-8");
}

TEST_F(TaskFiles, WhatCannotBeScoredIsRefused) {
  EXPECT_SAYS(refused("task: x\ndoc_to_text: a\n"),
              "output_type is generate_until: tasks that judge generated text are not run here");
  EXPECT_SAYS(refused("task: x\n" + kRest + "filter_list:\n  - name: a\n    filter: []\n"),
              "x.yaml:7: filter_list filters generated text");
  EXPECT_SAYS(refused("task: x\noutput_type: multiple_choice\ntest_split: t\ndoc_to_text: a\ndoc_to_target: b\n"),
              "doc_to_choice is missing");
  EXPECT_SAYS(refused("task: x\noutput_type: multiple_choice\ndoc_to_text: a\n"), "test_split is missing");
  EXPECT_SAYS(refused("task: x\n" + kRest + "description: '{{'\n"), "task x (x.yaml): description, line 1");
}

TEST_F(TaskFiles, BrokenYamlIsNamedByLine) {
  write("broken.yaml", "task: x\n  y: [\n");
  EXPECT_SAYS(message_of<ConfigError>([&] { select({"x"}); }), "broken.yaml:");
  EXPECT_SAYS(message_of<ConfigError>([&] { parse_yaml("a: [1\n", "f"); }), "f:");
}

TEST_F(TaskFiles, WordsAndNumbersHaveTheTypesOfPyYaml) {
  const auto value = [](const std::string& word) { return parse_yaml("k: " + word, "f")[0].value["k"]; };
  for (const char* word : {"yes", "True", "on"}) EXPECT_EQ(value(word), true) << word;
  for (const char* word : {"no", "FALSE", "Off"}) EXPECT_EQ(value(word), false) << word;
  for (const char* word : {"", "~", "null"}) EXPECT_EQ(value(word), nullptr) << word;
  EXPECT_EQ(value("'yes'"), "yes");
  EXPECT_EQ(value("010"), 8);
  EXPECT_EQ(value("0x1F"), 31);
  EXPECT_EQ(value("1_000"), 1000);
  EXPECT_EQ(value("1.0"), 1.0);
  EXPECT_EQ(value("1e5"), "1e5") << "YAML 1.1 wants a point and a sign";
  EXPECT_EQ(value("1.0e+5"), 1e5);
  EXPECT_EQ(value("y"), "y");
  EXPECT_EQ(value("!function a.b"), Json({{"!function", "a.b"}}));
}

TEST_F(TaskFiles, IncludedKeysComeFirstAndCyclesAreFound) {
  write("base",
        "test_split: test\noutput_type: multiple_choice\ndoc_to_text: question\ndoc_to_target: answer\ndoc_to_choice: "
        "[a, b]\nathanor: {data: d, chance: 0.5}\n");
  write("y.yaml", "include: base\ntask: y\ndoc_to_text: other\nathanor: {data: e}\n");
  const auto task = select({"y"}).tasks.at(0);
  EXPECT_EQ(task.doc.text.given, "other");
  EXPECT_EQ(task.data, "e");
  EXPECT_EQ(task.chance, 0.5);
  EXPECT_SAYS(refused("include: x.yaml\ntask: x\n"), "which includes this file");
  EXPECT_SAYS(refused("include: missing\ntask: x\n"), "x.yaml:1: include names");
}

TEST_F(TaskFiles, OneFileStandsForManyTasks) {
  write("many.yaml",
        "athanor:\n  where: s == '${s}'\n  for_each:\n    - {g: one, s: [a_b, c]}\n    - {g: two, s: d}\n"
        "task: t_${s}\ntag: ${g}_tag\ndescription: \"About ${s|replace('_', ' ')}.\"\n" +
            kRest + "---\ngroup: all\ntask: [one_tag, two_tag]\naggregate_metric_list: [{metric: acc}]\n");
  const auto selected = select({"all"});
  EXPECT_EQ(names_of({"all"}), (Names{"t_a_b", "t_c", "t_d"}));
  EXPECT_EQ(selected.tasks[0].description.given, "About a b.");
  EXPECT_EQ(selected.groups.at(0).members, (Names{"t_a_b", "t_c", "t_d"}));
  EXPECT_EQ(names_of({"two_tag", "one_tag"}), (Names{"t_d", "t_a_b", "t_c"}));
}

TEST_F(TaskFiles, GroupsGiveTheirKeysToTheirTasks) {
  write("a.yaml", "task: a\n" + kRest);
  write("b.yaml", "task: b\n" + kRest);
  write("g.yaml",
        "group: g\nnum_fewshot: 3\ntask:\n  - a\n  - task: b\n    num_fewshot: 4\n  - group: inner\n    task: [a]\n");
  const auto selected = select({"g"});
  EXPECT_EQ(names_of({"g"}), (Names{"a", "b"}));
  EXPECT_EQ(selected.tasks[0].num_fewshot, 3);
  EXPECT_EQ(selected.tasks[1].num_fewshot, 4);
  EXPECT_EQ(selected.groups.at(0).members, (Names{"a", "b", "g::inner"}));
  write("h.yaml", "group: h\ntask: [h]\n");
  EXPECT_SAYS(message_of<ConfigError>([&] { select({"h"}); }), "the group h has no task");
  EXPECT_SAYS(message_of<ConfigError>([&] { select({"a", "g"}); }), "has the task a twice, with different keys");
}

TEST_F(TaskFiles, AnUnknownNameIsAnsweredWithTheNearest) {
  write("a.yaml", "task: arc_easy\n" + kRest);
  EXPECT_SAYS(message_of<ConfigError>([&] { select({"arc_eazy"}); }),
              "no task, group, tag or file arc_eazy (did you mean \"arc_easy\"?)");
  EXPECT_EQ(names_of({(folder_ / "a.yaml").string()}), Names{"arc_easy"});
  EXPECT_EQ(names_of({"arc_*"}), Names{"arc_easy"});
  EXPECT_SAYS(message_of<ConfigError>([&] { select({"ark_*"}); }), "no task, group, tag or file ark_*");
}

// Every task that comes with the program can be used, and states what guessing gives.
TEST(ShippedTasks, CanBeUsedAndStateChance) {
  const TaskIndex index({shipped_tasks_folder()});
  EXPECT_TRUE(index.unreadable().empty());
  Names names;
  for (const auto& [name, entry] : index.entries()) names.push_back(name);
  const auto selected = index.select(names);
  EXPECT_EQ(selected.tasks.size(), 8u + 57u + 2u);
  for (const auto& task : selected.tasks)
    EXPECT_EQ(task.chance.has_value(), task.output_type == OutputType::kMultipleChoice) << task.name;
}

}  // namespace
}  // namespace athanor::tasks::task_files_test
