// docs/configuration.md states the defaults that a configuration gets.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "base/text.h"
#include "config/dump.h"
#include "config/toml_reader.h"

namespace athanor::defaults_page_test {
namespace {

// Returns the cells of "| a | b |", without the spaces around them.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  for (size_t begin = row.find("| "); begin != row.npos;) {
    const size_t end = row.find(" |", begin + 1);
    if (end == row.npos) break;
    cells.push_back(row.substr(begin + 2, end - begin - 2));
    begin = end + 1;
  }
  return cells;
}

// Returns the parts of "`optimizer.lr`, `schedule`" or "4e-4, `cosine` (a remark)", without marks and remarks.
std::vector<std::string> items_of(const std::string& cell) {
  std::vector<std::string> items = {""};
  int open = 0;
  for (const char c : cell) {
    if (c == '(') ++open;
    if (open == 0 && c == ',') items.emplace_back();
    if (open == 0 && c != ',' && c != '`' && c != ' ') items.back() += c;
    if (c == ')') --open;
  }
  return items;
}

bool is_same(const std::string& written, const std::string& value) {
  const std::string plain = value.starts_with('"') ? value.substr(1, value.size() - 2) : value;
  char* end = nullptr;
  const double number = std::strtod(written.c_str(), &end);
  if (end != written.c_str() && *end == '\0') return number == std::strtod(plain.c_str(), nullptr);
  return written == plain;
}

TEST(DefaultsPage, StatesWhatAConfigurationGets) {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set";
  std::ifstream page(std::string(source) + "/docs/configuration.md");
  RunConfig config = parse_run_config("", "run.toml");
  ASSERT_TRUE(config.train.dtype_was_auto);
  config.train.dtype = "auto";  // on any CPU
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : run_config_values(config)) values[name] = value;
  int compared = 0;
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("|")) in_table = false;
    if (line.starts_with("|---")) continue;
    if (line.starts_with("| field |")) {
      in_table = true;
      continue;
    }
    if (!in_table) continue;
    const auto cells = cells_of(line);
    ASSERT_EQ(cells.size(), 3) << line;
    const auto fields = items_of(cells[0]), defaults = items_of(cells[2]);
    ASSERT_EQ(fields.size(), defaults.size()) << line;
    std::string table;
    for (size_t i = 0; i < fields.size(); ++i) {
      const size_t dot = fields[i].find('.');
      if (dot != fields[i].npos) table = fields[i].substr(0, dot + 1);
      const std::string name = dot == fields[i].npos ? table + fields[i] : fields[i];
      ASSERT_TRUE(values.contains(name)) << name;
      EXPECT_TRUE(is_same(defaults[i], values[name])) << name << " is " << values[name] << ", not " << defaults[i];
      ++compared;
    }
  }
  EXPECT_GT(compared, 15);
}

}  // namespace
}  // namespace athanor::defaults_page_test
