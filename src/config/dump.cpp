#include "config/dump.h"

#include <fmt/core.h>

namespace athanor {
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
  void field(const char* key, std::vector<std::string>& v, const char* help,
             const Check<std::vector<std::string>>& c) override {
    put(key, v, help, c.expected);
  }

  std::string text;
  std::vector<std::string> keys;

 protected:
  bool enter(const char* key, const char* help) override {
    if (!text.empty()) text += '\n';
    text += with_help_ ? fmt::format("# {}\n[{}]\n", help, key) : fmt::format("[{}]\n", key);
    table_ = key;
    return true;
  }
  void leave() override {}

 private:
  template <class T>
  void put(const char* key, const T& value, const char* help, const std::string& expected) {
    if (with_help_) {
      text += fmt::format("# {}{}\n", help, expected.starts_with("one of") ? " (" + expected + ")" : "");
    }
    text += fmt::format("{} = {}\n", key, to_toml(value));
    keys.push_back(table_ + "." + key);
  }

  bool with_help_;
  std::string table_;
};

}  // namespace

std::string dump_run_config(const RunConfig& config, bool with_help) {
  Dumper dumper(with_help);
  RunConfig copy = config;  // describe() hands out references, since readers write through them
  copy.describe(dumper);
  return dumper.text;
}

std::vector<std::string> run_config_keys() {
  Dumper dumper(false);
  RunConfig config;
  config.describe(dumper);
  return dumper.keys;
}

}  // namespace athanor
