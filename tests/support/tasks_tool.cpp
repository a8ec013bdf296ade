// Gives tests in Python access to the room of evaluation tasks, without a model.
//
//   tasks_tool render      for each line {"template", "row"} of standard input: {"text"} or {"error"}
//   tasks_tool literal     for each line {"text"}: {"repr"} of what ast.literal_eval gives, null if it raises, or
//   {"error"} tasks_tool sample      for each line {"seed", "calls": [[n, k], ...]}: the positions that each call takes
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
  std::fprintf(stderr, "tasks_tool: unknown command %s\n", command.c_str());
  return 2;
}

}  // namespace
}  // namespace athanor::tasks

int main(int count, char** arguments) { return athanor::tasks::run(count > 1 ? arguments[1] : ""); }
