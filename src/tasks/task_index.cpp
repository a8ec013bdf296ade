#include "tasks/task_index.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "tasks/key_reader.h"

namespace athanor::tasks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kMaxGroupDepth = 20;

std::vector<std::string> names_in(const Json& keys, const std::string& key) {
  std::vector<std::string> names;
  const auto found = keys.find(key);
  if (found == keys.end()) return names;
  for (const auto& name : found->is_array() ? *found : Json::array({*found}))
    if (name.is_string()) names.push_back(name.get<std::string>());
  return names;
}

std::string name_of(const TaskEntry& entry) {
  const auto& name = entry.keys.at(entry.is_group ? "group" : "task");
  if (!name.is_string())
    fail<ConfigError>("{} is {}, a name is needed", entry.source.place(entry.is_group ? "group" : "task"),
                      describe_json(name));
  return name.get<std::string>();
}

std::vector<fs::path> task_files(const fs::path& folder) {
  std::error_code error;
  ATHANOR_CHECK(fs::is_directory(folder, error), "{} is no folder; name one with task files (.yaml)", folder.string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".yaml" && entry.is_regular_file(error)) files.push_back(entry.path());
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.generic_string() < b.generic_string(); });
  return files;
}

Json with_overrides(Json keys, const Json& overrides) {
  for (const auto& [key, value] : overrides.items()) keys[key] = value;
  return keys;
}

}  // namespace

TaskIndex::TaskIndex(const std::vector<fs::path>& folders) {
  for (const auto& folder : folders) {
    std::map<std::string, TaskEntry> of_folder;
    for (const auto& file : task_files(folder)) {
      try {
        for (auto& entry : read_task_file(file)) add(std::move(entry), of_folder);
      } catch (const Error& error) {
        unreadable_.emplace_back(error.what());
      }
    }
    for (auto& [name, entry] : of_folder) {
      if (entries_.count(name))
        log::info("{} of {} replaces the task of this name that comes with the program", name,
                  entry.source.file.string());
      entries_[name] = std::move(entry);
    }
  }
}

void TaskIndex::add(TaskEntry entry, std::map<std::string, TaskEntry>& of_folder) {
  const std::string name = name_of(entry);
  const auto [at, is_new] = of_folder.emplace(name, entry);
  ATHANOR_CHECK(is_new, "{}: there is already a task or group {} in {}", entry.source.file.string(), name,
                at->second.source.file.string());
  if (entry.is_group) return;
  for (const auto& tag : names_in(entry.keys, "tag")) tags_[tag].insert(name);
}

// Builds what names stand for, as lm_eval's TaskFactory does.
class TaskSelector {
 public:
  explicit TaskSelector(const TaskIndex& index) : index_(index) {}

  void add_name(const std::string& name) {
    if (const auto found = index_.entries_.find(name); found != index_.entries_.end()) return add_entry(found->second);
    if (const auto tag = index_.tags_.find(name); tag != index_.tags_.end()) {
      for (const auto& task : tag->second) add_entry(index_.entries_.at(task));
      return;
    }
    if (name.find_first_of("*?") != std::string::npos && add_matches(name)) return;
    std::error_code ignored;
    if (fs::is_regular_file(name, ignored)) {
      const auto entries = read_task_file(name);
      ATHANOR_CHECK(!entries.empty(), "{} is empty", name);
      for (const auto& entry : entries) add_entry(entry);
      return;
    }
    complain_of(name);
  }

  SelectedTasks take() { return std::move(selected_); }

 private:
  bool add_matches(const std::string& pattern) {
    bool any = false;
    for (const auto& [name, entry] : index_.entries_) {
      if (!matches_wildcard(pattern, name)) continue;
      add_entry(entry);
      any = true;
    }
    return any;
  }

  [[noreturn]] void complain_of(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& [known, entry] : index_.entries_) names.push_back(known);
    for (const auto& [known, tasks] : index_.tags_) names.push_back(known);
    const auto& broken = index_.unreadable_;
    fail<ConfigError>("no task, group, tag or file {}{}; `athanor eval --list` shows what there is{}", printable(name),
                      did_you_mean(name, names),
                      broken.empty() ? ""
                                     : fmt::format(" ({} task files cannot be used: {})", broken.size(),
                                                   join_first(broken, 2, "; ")));
  }

  void add_entry(const TaskEntry& entry) {
    if (entry.is_group) {
      build_group(name_of(entry), entry.keys, entry.source, Json::object(), 0);
    } else {
      add_task(entry.keys, entry.source);
    }
  }

  // Many tasks may include one file: each of its keys is told once.
  void tell_repeated(const KeySource& source) {
    for (const auto& message : source.repeated)
      if (told_.insert(message).second) log::warn("{}", message);
  }

  // Returns the index of the task in the selection. A task that several names stand for is there once.
  int64_t add_task(const Json& keys, const KeySource& source) {
    auto config = read_task_config(keys, source);
    tell_repeated(source);
    for (size_t i = 0; i < selected_.tasks.size(); ++i) {
      if (selected_.tasks[i].name != config.name) continue;
      ATHANOR_CHECK(selected_.tasks[i].keys == config.keys,
                    "{}: the selection has the task {} twice, with different keys", source.file.string(), config.name);
      return static_cast<int64_t>(i);
    }
    selected_.tasks.push_back(std::move(config));
    return static_cast<int64_t>(selected_.tasks.size()) - 1;
  }

  // Returns the leaves. The group comes before its subgroups in the list of groups.
  std::vector<int64_t> build_group(const std::string& name, const Json& keys, const KeySource& source,
                                   const Json& overrides, int depth) {
    ATHANOR_CHECK(depth < kMaxGroupDepth, "{}: the group {} holds itself", source.file.string(), name);
    for (const auto& group : selected_.groups)
      if (group.name == name) return group.leaves;
    auto group = read_group_config(keys, source);
    tell_repeated(source);
    group.name = name;
    if (!keys.contains("group_alias") || keys["group_alias"].is_null()) group.alias = name;
    Json inner = Json::object();
    for (const auto& [key, value] : keys.items())
      if (!is_group_key(key) && key != "tag") inner[key] = value;
    inner = with_overrides(std::move(inner), overrides);
    const size_t place = selected_.groups.size();
    selected_.groups.push_back(group);
    const auto members = keys.find("task");
    ATHANOR_CHECK(members != keys.end() && (members->is_array() || members->is_string()), "{} is missing, or no list",
                  source.place("task"));
    for (const auto& member : members->is_array() ? *members : Json::array({*members}))
      add_member(member, group, source, inner, depth);
    ATHANOR_CHECK(!group.leaves.empty(), "{}: the group {} has no task", source.file.string(), name);
    const auto leaves = group.leaves;
    selected_.groups[place] = std::move(group);
    return leaves;
  }

  void add_leaves(TaskGroup& group, const std::vector<int64_t>& leaves) {
    for (const int64_t leaf : leaves)
      if (std::find(group.leaves.begin(), group.leaves.end(), leaf) == group.leaves.end()) group.leaves.push_back(leaf);
  }

  void add_named(const std::string& name, TaskGroup& group, const KeySource& source, const Json& overrides, int depth) {
    const auto found = index_.entries_.find(name);
    if (found != index_.entries_.end()) {
      const auto& entry = found->second;
      group.members.push_back(name);
      if (entry.is_group) return add_leaves(group, build_group(name, entry.keys, entry.source, overrides, depth + 1));
      Json keys = with_overrides(entry.keys, overrides);
      keys["task"] = name;
      return add_leaves(group, {add_task(keys, entry.source)});
    }
    const auto tag = index_.tags_.find(name);
    if (tag == index_.tags_.end())
      fail<ConfigError>("{}: the group {} names {}, which is not there", source.place("task"), group.name,
                        printable(name));
    for (const auto& task : tag->second) add_named(task, group, source, overrides, depth);
  }

  void add_member(const Json& member, TaskGroup& group, const KeySource& source, const Json& overrides, int depth) {
    if (member.is_string()) return add_named(member.get<std::string>(), group, source, overrides, depth);
    ATHANOR_CHECK(member.is_object() && (member.contains("task") || member.contains("group")),
                  "{} holds {}; it lists names, or mappings with `task` or `group`", source.place("task"),
                  describe_json(member));
    if (member.contains("group")) {
      const std::string name = member["group"].is_string() ? member["group"].get<std::string>() : "";
      ATHANOR_CHECK(!name.empty(), "{} holds a group without a name", source.place("task"));
      if (index_.entries_.count(name)) {
        Json merged = with_overrides(overrides, member);
        merged.erase("group");
        return add_named(name, group, source, merged, depth);
      }
      const std::string inner = group.name + "::" + name;
      group.members.push_back(inner);
      return add_leaves(group, build_group(inner, member, source, overrides, depth + 1));
    }
    ATHANOR_CHECK(member["task"].is_string(), "{} holds a task without a name", source.place("task"));
    const std::string name = member["task"].get<std::string>();
    const Json merged = with_overrides(overrides, member);
    if (index_.entries_.count(name) || index_.tags_.count(name)) return add_named(name, group, source, merged, depth);
    Json keys = merged;
    keys["task"] = group.name + "::" + name;
    group.members.push_back(keys["task"].get<std::string>());
    add_leaves(group, {add_task(keys, source)});
  }

  const TaskIndex& index_;
  SelectedTasks selected_;
  std::set<std::string> told_;
};

SelectedTasks TaskIndex::select(const std::vector<std::string>& names) const {
  ATHANOR_CHECK(!names.empty(), "no task is named; `athanor eval --list` shows what there is");
  TaskSelector selector(*this);
  for (const auto& name : names) selector.add_name(name);
  return selector.take();
}

}  // namespace athanor::tasks
