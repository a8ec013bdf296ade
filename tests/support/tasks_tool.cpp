// Gives tests in Python access to the room of evaluation tasks, without a model.
//
//   tasks_tool render      for each line {"template", "row"} of standard input: {"text"} or {"error"}
//   tasks_tool literal     for each line {"text"}: {"repr"} of what ast.literal_eval gives, null if it raises, or
//   {"error"} tasks_tool sample      for each line {"seed", "calls": [[n, k], ...]}: the positions that each call takes
//   tasks_tool documents   for the one line {"names", "include", "data", "fewshot", "limit", "seed"}: each document of
//   the
//                          selection; with "answers" (one list [log-likelihood, greedy, tokens] for each request, in
//                          order) their lines of samples, and the results behind them; or {"error"}
//   tasks_tool list        for each line {"include"}: what tasks there are
//   tasks_tool regex       for each line {"text", "pattern", "by", "count"}: {"text"} or {"error"}

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "tasks/python_literal.h"
#include "tasks/python_random.h"
#include "tasks/python_regex.h"
#include "tasks/python_repr.h"
#include "tasks/task_list.h"
#include "tasks/task_scores.h"
#include "tasks/task_set.h"
#include "tasks/template.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

Json render(const Json& line) {
  const auto source = line.at("template").get<std::string>();
  return {{"text", Template::compile(source, "template").render(line.at("row"))}};
}

Json literal(const Json& line) {
  const auto value = read_literal(line.at("text").get<std::string>());
  return {{"repr", value ? Json(python_repr(*value)) : Json()}};
}

Json sample(const Json& line) {
  PythonRandom random(line.at("seed").get<uint64_t>());
  auto taken = Json::array();
  for (const auto& call : line.at("calls"))
    taken.push_back(random.sample(call[0].get<uint64_t>(), call[1].get<uint64_t>()));
  return taken;
}

Json regex(const Json& line) {
  const auto text = [&](const char* key) { return line.at(key).get<std::string>(); };
  return {{"text", regex_replace(text("text"), text("pattern"), text("by"), line.at("count").get<int64_t>())}};
}

TaskSelection selection_of(const Json& line) {
  TaskSelection selection;
  selection.names = line.at("names").get<std::vector<std::string>>();
  for (const auto& folder : line.value("include", Json::array()))
    selection.include_paths.emplace_back(folder.get<std::string>());
  selection.data = line.at("data").get<std::string>();
  if (line.contains("fewshot")) selection.num_fewshot = line["fewshot"].get<int64_t>();
  selection.limit = line.value("limit", 0.0);
  selection.fewshot_seed = line.value("seed", uint64_t{1234});
  return selection;
}

Json show(const TaskSet& set, const TaskDocument& document) {
  Json shown{{"task", set.name(document.task)},
             {"doc_id", document.doc_id},
             {"gold", document.gold},
             {"requests", Json::array()}};
  for (const auto& request : document.requests)
    shown["requests"].push_back({request.context, request.continuation, request.rolling});
  return shown;
}

Json documents(const Json& line) {
  const auto set = TaskSet::load(selection_of(line));
  TaskScores scores(set);
  Json all{{"num_documents", set.num_documents()}, {"documents", Json::array()}, {"samples", Json::array()}};
  size_t next = 0;
  TaskDocument document;
  for (const auto stream = set.documents(); stream->next(document);) {
    all["documents"].push_back(show(set, document));
    if (!line.contains("answers")) continue;
    std::vector<Answer> answers;
    for (size_t i = 0; i < document.requests.size(); ++i) {
      const auto& answer = line["answers"].at(next++);
      answers.push_back({answer[0].get<double>(), answer[1].get<bool>(), answer[2].get<int64_t>()});
    }
    scores.add(document, answers);
    all["samples"].push_back(scores.sample(document, answers));
  }
  if (line.contains("answers")) all["results"] = scores.results();
  return all;
}

Json list(const Json& line) {
  std::vector<std::filesystem::path> folders;
  for (const auto& folder : line.at("include")) folders.emplace_back(folder.get<std::string>());
  return {{"text", format_task_list(list_tasks(folders))}};
}

int answer_lines(Json (*answer)(const Json&)) {
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = answer(Json::parse(line));
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::puts(result.dump().c_str());
  }
  return 0;
}

int run(const std::string& command) {
  if (command == "render") return answer_lines(render);
  if (command == "literal") return answer_lines(literal);
  if (command == "sample") return answer_lines(sample);
  if (command == "regex") return answer_lines(regex);
  if (command == "documents") return answer_lines(documents);
  if (command == "list") return answer_lines(list);
  std::fprintf(stderr, "tasks_tool: unknown command %s\n", command.c_str());
  return 2;
}

}  // namespace
}  // namespace athanor::tasks

int main(int count, char** arguments) { return athanor::tasks::run(count > 1 ? arguments[1] : ""); }
