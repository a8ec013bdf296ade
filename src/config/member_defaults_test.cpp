// The defaults of members stand for what the configuration of an old run lacks, so they never change: a run that is
// resumed would train with other numbers. A better default is derived where a new run's configuration is resolved
// (config/defaults.h).

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "config/dump.h"

namespace athanor::member_defaults_test {
namespace {

TEST(MemberDefaults, AreThoseThatOldRunsWereMadeWith) {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set";
  std::ifstream file(std::string(source) + "/tests/old_runs/member_defaults.txt");
  ASSERT_TRUE(file.good());
  std::map<std::string, std::string> kept;
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find(" = ");
    ASSERT_NE(equals, std::string::npos) << line;
    kept[line.substr(0, equals)] = line.substr(equals + 3);
  }
  for (const auto& [name, value] : run_config_values(RunConfig{})) {
    const auto found = kept.find(name);
    if (found == kept.end()) {
      ADD_FAILURE() << "add to tests/old_runs/member_defaults.txt:\n" << name << " = " << value;
      continue;
    }
    EXPECT_EQ(value, found->second) << name
                                    << " stands for what old files lack; derive a new default where it is resolved";
    kept.erase(found);
  }
  EXPECT_TRUE(kept.empty()) << kept.begin()->first << " is gone: old files that have it are refused";
}

}  // namespace
}  // namespace athanor::member_defaults_test
