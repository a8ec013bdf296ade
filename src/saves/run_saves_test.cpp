// Tests which saves are started when several are due or asked for at once.

#include "saves/run_saves.h"

#include <gtest/gtest.h>

#include <fstream>

#include "saves/testing/ranks.h"

namespace athanor::run_saves_test {
namespace {

using Why = RunSaves::Why;

class SavesOfARun : public Ranks {
 protected:
  // Starts a save at step 1, puts one off that is asked for at step 2, starts that at step 3, and calls `act` there.
  void with_one_that_was_put_off(const std::function<void(TrainState&, RunSaves&)>& act,
                                 const std::string& if_still_saving = "wait") {
    run_ = config({1, 2, 1, "ep_aware"}, "run");
    run_.checkpoint.if_still_saving = if_still_saving;
    on_ranks(run_, [&](TrainState& state) {
      initialize(state);
      RunContext at;
      RunSaves saves(state, state.model.mesh, at, state.position.step);
      train(state, 1);
      saves.save_checkpoint(Why::kDue);
      train(state, 1);
      saves.look_after(/*any_writes=*/true);
      saves.save_checkpoint(Why::kAsked);
      EXPECT_EQ(saves.num_started(), 1);
      train(state, 1);
      saves.look_after(/*any_writes=*/false);
      EXPECT_EQ(saves.num_started(), 2);
      act(state, saves);
      saves.finish();
    });
  }

  // Returns the events of the run as "EVENT STEP".
  std::vector<std::string> events() const {
    std::vector<std::string> found;
    std::ifstream file(RunFolder{run_.train.run_dir}.events());
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line);
      found.push_back(fmt::format("{} {}", event["event"].get<std::string>(), event["step"].get<int64_t>()));
    }
    return found;
  }

  RunConfig run_;
};

TEST_F(SavesOfARun, AStepWhoseSaveWasStartedIsSavedOnceWhyeverItIsToBeSavedAgain) {
  for (const char* if_still_saving : {"wait", "skip"}) {
    with_one_that_was_put_off(
        [&](TrainState& state, RunSaves& saves) {
          saves.save_checkpoint(Why::kDue);
          saves.save_checkpoint(Why::kAsked);
          EXPECT_EQ(saves.num_started(), 2);
          train(state, 1);
          saves.look_after(/*any_writes=*/false);
          EXPECT_EQ(saves.num_started(), 2) << "none was put off";
        },
        if_still_saving);
    EXPECT_EQ(events(), (std::vector<std::string>{"save 1", "save 3"})) << if_still_saving;
    fs::remove_all(run_.train.run_dir);
  }
}

TEST_F(SavesOfARun, TheLastOneIsOnDiskIfItWasStartedForAnotherReason) {
  with_one_that_was_put_off([&](TrainState&, RunSaves& saves) {
    saves.save_checkpoint(Why::kLast);
    EXPECT_FALSE(saves.pending());
    EXPECT_TRUE(saves.is_saved());
  });
  EXPECT_EQ(events(), (std::vector<std::string>{"save 1", "save 3"}));
}

// A model of the same step waits for the checkpoint, which is then on disk when it is due.
TEST_F(SavesOfARun, AStepThatIsOnDiskIsNotSavedAgain) {
  with_one_that_was_put_off([&](TrainState&, RunSaves& saves) {
    saves.finish();
    saves.save_checkpoint(Why::kDue);
    EXPECT_EQ(saves.num_started(), 2);
  });
}

TEST_F(SavesOfARun, OneThatWasPutOffIsStartedAlsoIfAModelHasWaitedForTheOneBefore) {
  with_one_that_was_put_off([&](TrainState& state, RunSaves& saves) {
    train(state, 1);
    saves.save_checkpoint(Why::kAsked);
    saves.finish();
    train(state, 1);
    saves.look_after(/*any_writes=*/false);
    EXPECT_EQ(saves.num_started(), 3);
  });
  EXPECT_EQ(events(), (std::vector<std::string>{"save 1", "save 3", "save 5"}));
}

}  // namespace
}  // namespace athanor::run_saves_test
