#include "base/own_folder.h"

#include <gtest/gtest.h>

namespace athanor::own_folder_test {
namespace {

// This program was linked with the static room.
TEST(OwnFolder, OfCodeLinkedIntoAProgramIsTheFolderOfTheProgram) {
  const auto program = std::filesystem::canonical("/proc/self/exe");
  EXPECT_EQ(own_folder(), program.parent_path());
  EXPECT_TRUE(std::filesystem::exists(own_folder() / program.filename()));
}

}  // namespace
}  // namespace athanor::own_folder_test
