#include "base/build_info.h"

#include <gtest/gtest.h>

namespace athanor::build_info_test {
namespace {

// So a commit changes no program that links the static room; `athanor --version` is tested in tests/interop.
TEST(BuildInfo, OfAProgramThatLinksTheStaticRoomIsUnknown) {
  EXPECT_EQ(build_info().version, "unknown");
  EXPECT_EQ(build_info().commit, "unknown");
}

}  // namespace
}  // namespace athanor::build_info_test
