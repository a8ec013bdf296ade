#include "config/toml_reader.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <type_traits>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/bounded_toml.h"
#include "config/checks.h"
#include "config/defaults.h"
#include "config/dump.h"
#include "config/foreign_keys.h"
#include "config/optimizer_checks.h"
#include "config/training_stages.h"

namespace athanor::inline config {
namespace {

std::string place_of(const toml::source_region& source) {
  std::string path = source.path ? *source.path : "";
  if (path.starts_with("--")) return path;  // an option
  return fmt::format("{}:{}:{}", path, source.begin.line, source.begin.column);
}

std::string type_name(const toml::node& node) {
  std::ostringstream name;
  name << node.type();
  return name.str();
}

// A value on one line; the library writes long lists, tables and texts with line breaks on several.
std::string line_of(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());  // 1e-06, not 17 digits
  if (const auto* array = node.as_array()) {
    std::vector<std::string> items;
    for (const auto& item : *array) items.push_back(line_of(item));
    return "[" + join(items) + "]";
  }
  std::ostringstream text;
  node.visit([&](const auto& concrete) { text << concrete; });
  std::string line;
  for (const char c : text.str()) {
    const bool is_break = c == '\n', is_indent = c == ' ' && line.ends_with(' ');
    if (!is_indent) line += is_break ? ' ' : c;
  }
  return line;
}

std::string shown(const toml::node& node) {
  std::string value = line_of(node);
  if (value.size() > 60) value = value.substr(0, 57) + "...";
  return value;
}

// Returns what an unknown key may have meant: a field of its table that is spelled nearly so, the field of another
// table that has this name, or what another system's setting is called here.
std::string hint_of(const std::string& key, const std::vector<std::string>& known) {
  if (is_not_supported(key)) return ": not supported yet";
  if (const auto ours = our_name_of(key); !ours.empty()) return fmt::format(": here it is {}", ours);
  if (std::string near = did_you_mean(key, known); !near.empty()) return near;
  for (const std::string& field : run_config_keys()) {
    if (field.ends_with("." + key)) return fmt::format(": here it is {}", field);
  }
  return "; `athanor config` prints all fields";
}

// Walks the declared fields and the parsed table in parallel; a key that is left over in a table is unknown.
class TomlReader : public Fields {
 public:
  TomlReader(const toml::table& root, std::vector<std::string>& errors) : errors_(errors) {
    levels_.push_back({&root, "", {}});
  }

  void field(const char* key, bool& value, const char*, const Check<bool>& check) override { read(key, value, check); }
  void field(const char* key, int64_t& value, const char*, const Check<int64_t>& check) override {
    read(key, value, check);
  }
  void field(const char* key, double& value, const char*, const Check<double>& check) override {
    read(key, value, check);
  }
  void field(const char* key, std::string& value, const char*, const Check<std::string>& check) override {
    read(key, value, check);
  }
  void field(const char* key, std::vector<double>& value, const char*,
             const Check<std::vector<double>>& check) override {
    read(key, value, check);
  }
  void field(const char* key, std::vector<int64_t>& value, const char*,
             const Check<std::vector<int64_t>>& check) override {
    read(key, value, check);
  }
  void field(const char* key, std::vector<std::string>& value, const char*,
             const Check<std::vector<std::string>>& check) override {
    read(key, value, check);
  }
  void field(const char* key, CountOrAuto& value, const char*, const Check<CountOrAuto>& check) override {
    read(key, value, check);
  }
  void field(const char* key, NameOrNames& value, const char*, const Check<NameOrNames>& check) override {
    read(key, value, check);
  }

  static constexpr size_t kMostUnknown = 50;    // named in one table; a hint is looked for among all fields
  static constexpr size_t kMostEntries = 1024;  // in a list of tables: phases, sources and groups meet each other

  /// Must be called when every field has been visited.
  void report_unknown_keys() {
    const Level& level = levels_.back();
    if (!level.table) return;
    size_t num_unknown = 0;
    for (const auto& [key, node] : *level.table) {
      const std::string name(key.str());
      if (std::find(level.known.begin(), level.known.end(), name) != level.known.end()) continue;
      if (++num_unknown > kMostUnknown) continue;
      errors_.push_back(fmt::format("{}: unknown key {}{}{}", place_of(node.source()), level.prefix, name,
                                    hint_of(name, level.known)));
    }
    if (num_unknown > kMostUnknown)
      errors_.push_back(fmt::format("{}: {} more unknown keys in {}", place_of(level.table->source()),
                                    num_unknown - kMostUnknown, level.prefix.empty() ? "the file" : level.prefix));
  }

 protected:
  bool enter(const char* key, const char*) override {
    Level& level = levels_.back();
    level.known.emplace_back(key);
    const toml::node* node = level.table ? level.table->get(key) : nullptr;
    if (node && !node->is_table()) {
      errors_.push_back(fmt::format("{}: {}{}: expected a table ([{}]), got a {}", place_of(node->source()),
                                    level.prefix, key, key, type_name(*node)));
      node = nullptr;
    }
    levels_.push_back({node ? node->as_table() : nullptr, level.prefix + key + ".", {}});
    return true;
  }

  void leave() override {
    report_unknown_keys();
    levels_.pop_back();
  }

  size_t enter_list(const char* key, const char*, size_t) override {
    Level& level = levels_.back();
    level.known.emplace_back(key);
    const toml::node* node = level.table ? level.table->get(key) : nullptr;
    lists_.push_back({node ? node->as_array() : nullptr, level.prefix + key, 0});
    const bool only_tables = lists_.back().array && (lists_.back().array->empty() ||
                                                     lists_.back().array->is_homogeneous(toml::node_type::table));
    if (only_tables && lists_.back().array->size() > kMostEntries) {
      errors_.push_back(fmt::format("{}: {}{}: {} entries, more than the {} that a list may have",
                                    place_of(node->source()), level.prefix, key, lists_.back().array->size(),
                                    kMostEntries));
      return 0;
    }
    if (only_tables) return lists_.back().array->size();
    if (node) {
      errors_.push_back(fmt::format("{}: {}{}: expected a list of tables ([[{}{}]]), got {}", place_of(node->source()),
                                    level.prefix, key, level.prefix, key, shown(*node)));
    }
    return 0;
  }

  void enter_item() override {
    List& list = lists_.back();
    const auto prefix = fmt::format("{}[{}].", list.name, list.next);
    levels_.push_back({list.array->get(list.next++)->as_table(), prefix, {}});
  }

  void leave_list() override { lists_.pop_back(); }

 private:
  struct List {
    const toml::array* array;
    std::string name;
    size_t next;
  };

  struct Level {
    const toml::table* table;
    std::string prefix;
    std::vector<std::string> known;
  };

  template <class T>
  void read(const char* key, T& value, const Check<T>& check) {
    Level& level = levels_.back();
    level.known.emplace_back(key);
    const toml::node* node = level.table ? level.table->get(key) : nullptr;
    if (!node) return;
    T parsed{};
    const bool typed = convert(*node, parsed);
    if (typed && (!check.holds || check.holds(parsed))) {
      value = check.canonical ? check.canonical(parsed) : std::move(parsed);
      return;
    }
    const std::string expected = check.expected.empty() ? expectation(parsed) : check.expected;
    errors_.push_back(fmt::format("{}: {}{}: expected {}, got {}", place_of(node->source()), level.prefix, key,
                                  expected, shown(*node)));
  }

  static const char* expectation(const bool&) { return "true or false"; }
  static const char* expectation(const int64_t&) { return "an integer"; }
  static const char* expectation(const double&) { return "a number"; }
  static const char* expectation(const std::string&) { return "a string in quotes"; }
  static const char* expectation(const std::vector<double>&) { return "a list of numbers, written [0.9, 0.95]"; }
  static const char* expectation(const std::vector<int64_t>&) { return "a list of integers, written [1, 2]"; }
  static const char* expectation(const std::vector<std::string>&) {
    return "a list of strings, written [\"one\", \"two\"]";
  }
  static const char* expectation(const CountOrAuto&) { return "an integer or \"auto\""; }
  static const char* expectation(const NameOrNames&) {
    return "a string in quotes or a list of them, written [\"one\", \"two\"]";
  }

  // 1e3 is 1000. Beyond 2^53 a double is not exactly what was written.
  static bool convert_whole(const toml::node& node, int64_t& out) {
    const auto real = node.value_exact<double>();
    if (!real || std::floor(*real) != *real || std::abs(*real) > 0x1p53) return false;
    out = static_cast<int64_t>(*real);
    return true;
  }

  template <class T>
  static bool convert(const toml::node& node, T& out) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, std::string>) {
      const auto value = node.value_exact<T>();
      if (value) out = *value;
      if constexpr (std::is_same_v<T, int64_t>) return value || convert_whole(node, out);
      return value.has_value();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!node.is_number()) return false;
      out = *node.value<double>();
      return true;
    } else if constexpr (std::is_same_v<T, CountOrAuto>) {
      if (std::string name; convert(node, name)) {
        out.is_auto = name == "auto";
        return out.is_auto;
      }
      return convert(node, out.count);
    } else if constexpr (std::is_same_v<T, NameOrNames>) {
      if (std::string name; convert(node, name)) {
        out = std::move(name);
        return true;
      }
      std::vector<std::string> names;
      const bool listed = convert(node, names);
      out = std::move(names);
      return listed;
    } else {
      const auto* array = node.as_array();
      if (!array) return false;
      for (const auto& item : *array) {
        typename T::value_type element{};
        if (!convert(item, element)) return false;
        out.push_back(std::move(element));
      }
      return true;
    }
  }

  std::vector<std::string>& errors_;
  std::vector<Level> levels_;
  std::vector<List> lists_;
};

// Parses "a.b=c" to the table {a: {b: c}}. A value that is not TOML by itself is taken as a string, so that quotes may
// be left out.
toml::table parse_override(const std::string& option, const std::string& text) {
  const auto equals = text.find('=');
  const std::string source = option + " " + text;
  ATHANOR_CHECK(equals != std::string::npos && equals > 0, "{}: expected table.key=value", source);
  try {
    return parse_bounded_toml(text.substr(0, equals) + " = " + text.substr(equals + 1), source);
  } catch (const toml::parse_error&) {
  }
  std::string quoted;
  for (const char c : text.substr(equals + 1)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  try {
    return parse_bounded_toml(text.substr(0, equals) + " = \"" + quoted + "\"", source);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}: {}; expected table.key=value", source, std::string(error.description()));
  }
}

void merge(toml::table& into, toml::table&& from) {
  for (auto&& [key, node] : from) {
    toml::node* existing = into.get(key);
    if (existing && existing->is_table() && node.is_table()) {
      merge(*existing->as_table(), std::move(*node.as_table()));
    } else {
      into.insert_or_assign(key, std::move(node));
    }
  }
}

// Returns what is wrong with a TOML text, without the words of the library ("Error while parsing key-value pair: ").
std::string reason_of(const toml::parse_error& error) {
  const std::string text(error.description());
  const size_t at = text.starts_with("Error while parsing ") ? text.find(": ") : text.npos;
  const std::string reason = at == text.npos ? text : text.substr(at + 2);
  return reason == "could not determine value type" ? "a value is expected here, such as 3, true or \"a text\""
                                                    : reason;
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return parse_bounded_toml(text, name);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}: {}; the file must be TOML", place_of(error.source()), reason_of(error));
  }
}

}  // namespace

namespace {

void note_written_fields(const toml::table& root, ModelConfig& model) {
  const toml::table* table = root["model"].as_table();
  if (model.from.empty() || !table) return;
  for (const auto& [key, node] : *table) {
    if (key.str() == "from") continue;
    if (!node.is_table()) model.written.keys.emplace_back(key.str());
    if (const auto* inner = node.as_table()) {
      for (const auto& [inner_key, value] : *inner)
        model.written.keys.push_back(std::string(key.str()) + "." + std::string(inner_key.str()));
    }
  }
}

}  // namespace

RunConfig parse_run_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides,
                           const FindMore& more, const std::vector<std::string>& swept) {
  toml::table root = parse_toml(text, name);
  const std::string option = name.starts_with("--") ? name : "--set";
  for (const auto& override_text : overrides) merge(root, parse_override(option, override_text));
  RunConfig config;
  std::vector<std::string> errors;
  TomlReader reader(root, errors);
  config.describe(reader);
  reader.report_unknown_keys();
  note_written_fields(root, config.model);
  if (!config.train.stages.empty() && !root.at_path("train.steps")) {
    config.train.steps = training_stages(config).back().end();
  }
  if (errors.empty()) resolve_defaults(config, [&](std::string_view key) { return bool(root.at_path(key)); });
  drop_options_of_others(config.optimizer, swept);
  if (errors.empty()) {
    auto lines = find_contradictions(config);
    if (more) std::ranges::move(more(config), std::back_inserter(lines));
    for (const auto& line : lines) {
      const std::string error = name + ": " + line;
      if (std::ranges::find(errors, error) == errors.end()) errors.push_back(error);  // both may find the same error
    }
  }
  if (!errors.empty()) throw ConfigError(join(errors, "\n"));
  return config;
}

RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                          const FindMore& more, const std::vector<std::string>& swept) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored),
             is_folder = std::filesystem::is_directory(file, ignored);
  ATHANOR_CHECK(!is_folder || !std::filesystem::exists(file / "config.toml", ignored),
                "{} is a folder; did you mean {}?", file.string(), (file / "config.toml").string());
  ATHANOR_CHECK(is_there && !is_folder,
                "{} {}; name the run's configuration, a TOML file (`athanor config` prints one with all fields)",
                file.string(), is_folder ? "is a folder" : "does not exist");
  return parse_run_config(read_file(file), file.string(), overrides, more, swept);
}

}  // namespace athanor::inline config
