// Task files: includes, and one file for many tasks.

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tasks/key_reader.h"
#include "tasks/task_index.h"
#include "tasks/yaml_file.h"

namespace athanor::tasks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxForEach = 10'000;

struct IncludedKeys {
  Json keys = Json::object();
  std::map<std::string, std::pair<std::string, int>> lines;
  std::vector<std::string> repeated;

  // Keys that come later replace earlier ones; those of `athanor` one by one.
  void merge(const Json& more, const std::map<std::string, std::pair<std::string, int>>& more_lines) {
    for (const auto& [key, value] : more.items()) {
      if (key == "athanor" && keys.contains(key) && keys[key].is_object() && value.is_object()) {
        for (const auto& [name, member] : value.items()) keys[key][name] = member;
      } else {
        keys[key] = value;
      }
    }
    for (const auto& [key, line] : more_lines) lines[key] = line;
  }
};

IncludedKeys resolve_includes(const YamlDocument& document, const fs::path& file, std::vector<fs::path> open);

IncludedKeys read_included(const fs::path& file, const std::vector<fs::path>& open, const std::string& place) {
  std::error_code ignored;
  ATHANOR_CHECK(fs::is_regular_file(file, ignored), "{} names {}, which is not there", place, file.string());
  for (const auto& other : open)
    ATHANOR_CHECK(!fs::equivalent(other, file, ignored), "{} names {}, which includes this file", place, file.string());
  const auto documents = read_yaml(file);
  ATHANOR_CHECK(documents.size() == 1, "{} names {}, which has {} documents; one is needed", place, file.string(),
                documents.size());
  return resolve_includes(documents[0], file, open);
}

IncludedKeys resolve_includes(const YamlDocument& document, const fs::path& file, std::vector<fs::path> open) {
  ATHANOR_CHECK(document.value.is_object(), "{}: a task file is a mapping of keys, this is {}", file.string(),
                describe_json(document.value));
  std::map<std::string, std::pair<std::string, int>> lines;
  for (const auto& [key, line] : document.lines) lines[key] = {file.string(), line};
  open.push_back(file);
  IncludedKeys all;
  Json own = document.value;
  if (const auto found = own.find("include"); found != own.end()) {
    const KeySource source{file, lines};
    for (const auto& name : found->is_array() ? *found : Json::array({*found})) {
      ATHANOR_CHECK(name.is_string(), "{} is {}, a file is needed", source.place("include"), describe_json(name));
      const fs::path included = file.parent_path() / fs::path(name.get<std::string>());
      const auto inner = read_included(included, open, source.place("include"));
      all.merge(inner.keys, inner.lines);
      all.repeated.insert(all.repeated.end(), inner.repeated.begin(), inner.repeated.end());
    }
    own.erase("include");
  }
  all.merge(own, lines);
  all.repeated.insert(all.repeated.end(), document.repeated.begin(), document.repeated.end());
  return all;
}

// Every combination of the values of the mappings in athanor.for_each.
std::vector<Json> combinations(const Json& for_each, const KeySource& source) {
  const auto complain = [&](const Json& what) {
    fail<ConfigError>("{} holds {}; it is a list of mappings, each from names to a text or a list of texts",
                      source.place("athanor.for_each"), describe_json(what));
  };
  if (!for_each.is_array()) complain(for_each);
  std::vector<Json> all;
  for (const auto& mapping : for_each) {
    if (!mapping.is_object()) complain(mapping);
    std::vector<Json> rows{Json::object()};
    for (const auto& [name, values] : mapping.items()) {
      std::vector<Json> longer;
      for (const auto& row : rows) {
        for (const auto& value : values.is_array() ? values : Json::array({values})) {
          if (!value.is_string()) complain(value);
          longer.push_back(row);
          longer.back()[name] = value;
        }
      }
      rows = std::move(longer);
      ATHANOR_CHECK(rows.size() + all.size() <= kMaxForEach, "{}: more than {} tasks", source.place("athanor.for_each"),
                    kMaxForEach);
    }
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

// Replaces ${expression} by its value for the names of `row`.
std::string fill_in(const std::string& text, const Json& row, const std::string& what) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", begin)) {
    const size_t end = text.find('}', at);
    ATHANOR_CHECK(end != std::string::npos, "{}: ${{ has no }}", what);
    out += text.substr(begin, at - begin);
    out += Template::compile("{{" + text.substr(at + 2, end - at - 2) + "}}", what).render(row);
    begin = end + 1;
  }
  return out + text.substr(begin);
}

void fill_in_all(Json& value, const Json& row, const std::string& what) {
  if (value.is_string()) {
    value = fill_in(value.get_ref<const std::string&>(), row, what);
  } else if (value.is_structured()) {
    for (auto& member : value) fill_in_all(member, row, what);
  }
}

}  // namespace

std::vector<TaskEntry> read_task_file(const fs::path& file) {
  std::vector<TaskEntry> entries;
  for (const auto& document : read_yaml(file)) {
    auto all = resolve_includes(document, file, {});
    const KeySource source{file, std::move(all.lines), std::move(all.repeated)};
    const bool is_group = all.keys.contains("group");
    ATHANOR_CHECK(is_group || all.keys.contains("task"), "{}: neither `task` nor `group` is there, so this is no task",
                  file.string());
    const auto own = all.keys.find("athanor");
    if (is_group || own == all.keys.end() || !own->is_object() || !own->contains("for_each")) {
      entries.push_back({is_group, std::move(all.keys), source});
      continue;
    }
    const Json for_each = (*own)["for_each"];
    own->erase("for_each");
    for (const auto& row : combinations(for_each, source)) {
      TaskEntry entry{false, all.keys, source};
      fill_in_all(entry.keys, row, source.place("athanor.for_each"));
      entries.push_back(std::move(entry));
    }
  }
  return entries;
}

}  // namespace athanor::tasks
