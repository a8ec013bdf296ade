// Tests where a run with nothing in its folder but a history begins: its nodes may have local checkpoints.

#include "saves/resume_point.h"

#include <fstream>

#include "base/testing/folder_test.h"

namespace athanor::resume_point_test {
namespace {

namespace fs = std::filesystem;

class Beginnings : public FolderTest {
 protected:
  RunConfig config(const std::string& resume) const {
    RunConfig c;
    c.train.run_dir = (folder_ / "run").string();
    c.checkpoint.resume = resume;
    return c;
  }
  // Two attempts, of which the second began another branch.
  void write_history(const std::string& more = "") const {
    fs::create_directories(folder_ / "run");
    std::ofstream(folder_ / "run" / "events.jsonl")
        << "{\"event\": \"start\", \"attempt\": 1, \"step\": 0, \"branch\": 1}\n"
        << "{\"event\": \"start\", \"attempt\": 2, \"step\": 0, \"branch\": 2}\n"
        << more;
  }
  std::string other_checkpoint() const {
    const fs::path folder = folder_ / "other" / "checkpoints" / "step-00000007";
    fs::create_directories(folder);
    std::ofstream(folder / "manifest.json") << "{}";
    return folder.string();
  }
  static constexpr const char* kSaved =
      "{\"event\": \"save\", \"attempt\": 2, \"step\": 5, \"kind\": \"checkpoint\"}\n";
};

TEST_F(Beginnings, ARunThatIsToBeginElsewhereContinuesFromItsLocalCheckpointsIfItHasSome) {
  write_history();
  const ResumePoint begin = ResumePoint::from_text(plan_resume_point(config(other_checkpoint())).to_text());
  EXPECT_EQ(begin.from, ResumePoint::From::kPath);
  EXPECT_EQ(begin.branch, 3) << "without local ones it is another branch";
  EXPECT_EQ(begin.branch_of_local(), 2);
  EXPECT_NO_THROW(begin.require_allowed());
  ASSERT_EQ(begin.notes_of_local.size(), 1u);
  EXPECT_SAYS(begin.notes_of_local[0],
              "checkpoint.resume (" + other_checkpoint() + ") was passed over: this run has continued since");
  EXPECT_TRUE(begin.notes.empty());
}

TEST_F(Beginnings, ARunWhoseCheckpointsAreGoneIsRefusedOnlyIfNoNodeHasALocalOne) {
  write_history(kSaved);
  for (const std::string& resume : {std::string("auto"), other_checkpoint()}) {
    const ResumePoint begin = ResumePoint::from_text(plan_resume_point(config(resume)).to_text());
    EXPECT_EQ(begin.branch_of_local(), 2) << resume;
    EXPECT_EQ(begin.step, -1) << resume;
    EXPECT_SAYS(message_of<CheckpointError>([&] { begin.require_allowed(); }),
                "belongs to a run whose checkpoints are gone");
  }
}

TEST_F(Beginnings, APlaceThatNeverWasIsRefusedWhateverNodesHave) {
  write_history();
  EXPECT_SAYS(message_of<ConfigError>([&] { plan_resume_point(config((folder_ / "nowhere").string())); }),
              "is neither a checkpoint (manifest.json) nor a model folder");
}

}  // namespace
}  // namespace athanor::resume_point_test
