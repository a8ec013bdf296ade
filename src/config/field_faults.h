#pragma once
// Applies the declared checks to fields whose values did not come through the TOML reader: those of a model from a
// folder, or of a configuration that a program made.

#include <string>
#include <type_traits>
#include <vector>

#include "config/fields.h"

namespace athanor::inline config {

/// A visitor that checks the value of each field.
class FieldFaults : public Fields {
 public:
  /// @param prefix  prefix of the field names in messages: "model."
  explicit FieldFaults(std::string prefix) : prefix_(std::move(prefix)) {}

  void field(const char* key, bool& v, const char*, const Check<bool>& c) override { look(key, v, c); }
  void field(const char* key, int64_t& v, const char*, const Check<int64_t>& c) override { look(key, v, c); }
  void field(const char* key, double& v, const char*, const Check<double>& c) override { look(key, v, c); }
  void field(const char* key, std::string& v, const char*, const Check<std::string>& c) override { look(key, v, c); }
  void field(const char* key, std::vector<double>& v, const char*, const Check<std::vector<double>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, std::vector<int64_t>& v, const char*, const Check<std::vector<int64_t>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, std::vector<std::string>& v, const char*,
             const Check<std::vector<std::string>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, CountOrAuto& v, const char*, const Check<CountOrAuto>& c) override { look(key, v, c); }
  void field(const char* key, NameOrNames& v, const char*, const Check<NameOrNames>& c) override { look(key, v, c); }

  /// Returns a line for each visited field with a value that its declaration refuses: "model.hidden_size: expected an
  /// integer from 1 to 16777216, got 0".
  std::vector<std::string> take() { return std::move(lines_); }

 protected:
  bool enter(const char* key, const char*) override {
    tables_.push_back(prefix_);
    prefix_ += std::string(key) + ".";
    return true;
  }
  void leave() override {
    prefix_ = tables_.back();
    tables_.pop_back();
  }
  size_t enter_list(const char* key, const char*, size_t size) override {
    list_ = key;
    return size;
  }
  void enter_item() override { enter(list_.c_str(), ""); }
  void leave_list() override {}

 private:
  template <class T>
  void look(const char* key, const T& value, const Check<T>& check) {
    if (!check.holds || check.holds(value)) return;
    std::string got;
    if constexpr (std::is_arithmetic_v<T>) got = fmt::format(", got {}", value);
    lines_.push_back(fmt::format("{}{}: expected {}{}", prefix_, key, check.expected, got));
  }

  std::string prefix_, list_;
  std::vector<std::string> tables_, lines_;
};

}  // namespace athanor::inline config
