#include "run/refused_places.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "base/testing/folder_test.h"

namespace athanor::refused_places_test {
namespace {

namespace fs = std::filesystem;

class RunPlace : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    for (const char* folder : {"data", "run/checkpoints/step-00000001", "runs"})
      fs::create_directories(folder_ / folder);
    write_file_atomically(folder_ / "data/manifest.json", R"({"format": "athanor-data", "version": 2})");
    write_file_atomically(folder_ / "run/metrics.jsonl", "");
    write_file_atomically(folder_ / "run/config.toml", "");
  }
  std::string refused(const std::string& run, const std::string& data = "data") const {
    RunConfig c;
    c.train.run_dir = (folder_ / run).string();
    c.data.path = (folder_ / data).string();
    try {
      refuse_misplaced_run(c);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(RunPlace, ARunIsNotWrittenIntoDataACheckpointOrAnotherRun) {
  for (const char* run : {"data", "data/", "data/run", "runs/../data/deep/run"})
    EXPECT_NE(refused(run).find("which contains prepared data"), std::string::npos) << run;
  EXPECT_NE(refused("run/second").find("the folder of another run"), std::string::npos);
  fs::create_directory_symlink(folder_ / "data", folder_ / "link");
  EXPECT_NE(refused("link/run").find("which contains prepared data"), std::string::npos);
}

TEST_F(RunPlace, AManifestOfSomethingElseIsInNobodysWay) {
  for (const char* text : {"{}", "", R"({"format": "other", "name": "athanor"})"}) {
    write_file_atomically(folder_ / "runs/manifest.json", text);
    EXPECT_EQ(refused("runs/new"), "") << text;
  }
  write_file_atomically(folder_ / "runs/manifest.json", "{\"hash\": \"0\",\n\"format\": \"athanor-checkpoint\"");
  EXPECT_SAYS(refused("runs/new"), "a checkpoint (manifest.json)");
  fs::remove(folder_ / "runs/manifest.json");
  fs::create_directories(folder_ / "runs/manifest.json");
  EXPECT_EQ(refused("runs/new"), "");
}

TEST_F(RunPlace, DataDoNotLieWhereARunWrites) {
  EXPECT_NE(refused("run", "run/checkpoints/data").find("a folder that the run"), std::string::npos);
  EXPECT_EQ(refused("run", "run/data"), "");
}

TEST_F(RunPlace, AFolderOfItsOwnIsRight) {
  for (const char* run : {"run", "runs/new", "new", "dat"}) EXPECT_EQ(refused(run), "") << run;
}

}  // namespace
}  // namespace athanor::refused_places_test
