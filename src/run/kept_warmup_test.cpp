#include "run/kept_defaults.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::kept_warmup_test {
namespace {

namespace fs = std::filesystem;

class KeptWarmup : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::create_directories(folder_ / "first/models/step-00000040");
    fs::create_directories(folder_ / "disk");
    write_file_atomically(folder_ / "first/config.toml", "[optimizer]\nwarmup_steps = 7\n");
  }
  int64_t kept(const std::string& resume) const {
    RunConfig config;
    config.train.run_dir = (folder_ / "second").string();
    config.checkpoint.resume = (folder_ / resume).string();
    config.optimizer.warmup_not_set = true;
    config.optimizer.warmup_steps = 20;
    keep_warmup(config, Team{});
    return config.optimizer.warmup_steps;
  }
};

TEST_F(KeptWarmup, IsThatOfTheOtherRunHoweverItsCheckpointIsNamed) {
  fs::create_directory_symlink(folder_ / "first/models/step-00000040", folder_ / "link");
  for (const char* path : {"first/models/step-00000040", "first/models/step-00000040/", "link", "link/",
                           "first/models/../models/step-00000040"})
    EXPECT_EQ(kept(path), 7) << path;
  fs::rename(folder_ / "first/models", folder_ / "disk/models");
  fs::create_directory_symlink(folder_ / "disk/models", folder_ / "first/models");
  EXPECT_EQ(kept("first/models/step-00000040/"), 7);
}

TEST_F(KeptWarmup, OfAConfigurationThatCannotBeReadIsNamedAndNotKept) {
  const fs::path file = folder_ / "first/config.toml";
  const auto warned = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(kept("first/models/step-00000040"), 20);
    return testing::internal::GetCapturedStderr();
  };
  write_file_atomically(file, "[of_another_version]\nx = 1\n");
  EXPECT_SAYS(warned(), file.string());
  fs::remove(file);
  fs::create_directories(file);
  EXPECT_SAYS(warned(), file.string());
  fs::remove(file);
  EXPECT_EQ(warned(), "");
}

}  // namespace
}  // namespace athanor::kept_warmup_test
