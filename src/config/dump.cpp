#include "config/dump.h"

#include <fmt/core.h>

namespace athanor::inline config {
namespace {

std::string to_toml(bool value) { return value ? "true" : "false"; }
std::string to_toml(int64_t value) { return std::to_string(value); }

std::string to_toml(double value) {
  std::string text = fmt::format("{}", value);  // the shortest form that reads back as the same bits
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

std::string to_toml(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

template <class T>
std::string to_toml(const std::vector<T>& list) {
  std::vector<std::string> items;
  for (const auto& item : list) items.push_back(to_toml(item));
  return "[" + join(items) + "]";
}

std::string to_toml(const CountOrAuto& value) { return to_text(value); }

std::string to_toml(const NameOrNames& value) {
  return std::visit([](const auto& held) { return to_toml(held); }, value);
}

class Dumper : public Fields {
 public:
  explicit Dumper(bool with_help) : with_help_(with_help) {}

  void field(const char* key, bool& v, const char* help, const Check<bool>& c) override {
    put(key, v, help, c.expected);
  }
  void field(const char* key, int64_t& v, const char* help, const Check<int64_t>&) override { put(key, v, help, ""); }
  void field(const char* key, double& v, const char* help, const Check<double>&) override { put(key, v, help, ""); }
  void field(const char* key, std::string& v, const char* help, const Check<std::string>& c) override {
    put(key, v, help, c.expected);
  }
  void field(const char* key, std::vector<double>& v, const char* help, const Check<std::vector<double>>&) override {
    put(key, v, help, "");
  }
  void field(const char* key, std::vector<int64_t>& v, const char* help, const Check<std::vector<int64_t>>&) override {
    put(key, v, help, "");
  }
  void field(const char* key, std::vector<std::string>& v, const char* help,
             const Check<std::vector<std::string>>& c) override {
    put(key, v, help, c.expected);
  }
  void field(const char* key, CountOrAuto& v, const char* help, const Check<CountOrAuto>&) override {
    put(key, v, help, "");
  }
  void field(const char* key, NameOrNames& v, const char* help, const Check<NameOrNames>&) override {
    put(key, v, help, "");
  }

  std::string text;
  std::vector<std::pair<std::string, std::string>> values;  // by name

 protected:
  bool enter(const char* key, const char* help) override {
    open(key, help, "[{}]");
    return true;
  }
  void leave() override {
    path_.pop_back();
    comment_.clear();
  }

  size_t enter_list(const char* key, const char* help, size_t size) override {
    lists_.emplace_back(key, help);
    return size;
  }
  void enter_item() override { open(lists_.back().first, lists_.back().second, "[[{}]]"); }
  bool enter_example() override {
    if (!with_help_ || path_.size() > 1) return false;
    comment_ = "# ";
    open(lists_.back().first, lists_.back().second, "[[{}]]");
    return true;
  }
  void leave_list() override { lists_.pop_back(); }

 private:
  void open(const std::string& key, const std::string& help, fmt::format_string<const std::string&> header) {
    path_.push_back(key);
    const std::string name = join(path_, ".");
    if (!text.empty()) text += '\n';
    if (with_help_) text += fmt::format("{}# {}\n", comment_, help);
    text += comment_ + fmt::format(header, name) + "\n";
  }

  template <class T>
  void put(const char* key, const T& value, const char* help, const std::string& expected) {
    if (with_help_) {
      text += fmt::format("{}# {}{}\n", comment_, help, expected.starts_with("one of") ? " (" + expected + ")" : "");
    }
    const std::string written = to_toml(value);
    text += fmt::format("{}{} = {}\n", comment_, key, written);
    if (comment_.empty()) values.emplace_back(join(path_, ".") + "." + key, written);
  }

  bool with_help_;
  std::vector<std::string> path_;
  std::vector<std::pair<std::string, std::string>> lists_;  // key and help of the fields around it
  std::string comment_;                                     // before each line of an example
};

}  // namespace

std::string dump_run_config(const RunConfig& config, bool with_help) {
  Dumper dumper(with_help);
  RunConfig copy = config;  // describe() takes references that are not const, since readers write through them
  copy.describe(dumper);
  return dumper.text;
}

std::vector<std::pair<std::string, std::string>> run_config_values(const RunConfig& config) {
  Dumper dumper(false);
  RunConfig copy = config;
  copy.describe(dumper);
  return dumper.values;
}

std::vector<std::string> run_config_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, value] : run_config_values({})) keys.push_back(key);
  return keys;
}

}  // namespace athanor::inline config
