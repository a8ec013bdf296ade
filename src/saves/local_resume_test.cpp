// Tests that a run continues from local checkpoints with the bits that it saved, whatever node was lost and whatever
// layout reads them.

#include "saves/local_resume.h"

#include <fstream>

#include "base/files.h"
#include "saves/background_save.h"
#include "saves/testing/ranks.h"

namespace athanor::local_resume_test {
namespace {

class LocalResumes : public Ranks {
 protected:
  RunConfig run_on_nodes(const Degrees& degrees, const std::string& name, int ranks_per_node) const {
    RunConfig c = config(degrees, name);
    c.topology.ranks_per_node = ranks_per_node;
    c.checkpoint.local_dir = (folder_ / "local").string();
    c.checkpoint.local_interval = 1;
    return c;
  }
  static ResumePoint start_number(int64_t attempt) {
    ResumePoint begin;
    begin.attempt = attempt;
    return begin;
  }

  // Trains two steps and saves them locally; returns the tensors, which are also in the run's folder under "expected".
  std::map<std::string, Tensor> save(const RunConfig& c) const {
    on_ranks(c, [&](TrainState& state) {
      initialize(state);
      const LocalStart local = look_for_local(c, start_number(1), state.model.mesh);
      EXPECT_FALSE(local.choice);
      if (state.model.mesh.is_first()) record_local({local.nodes, *local.place, 1}, state.model.mesh.world());
      BackgroundSave saves(
          state, [](const SaveOutcome&) { ADD_FAILURE() << "nothing is in the run's folder"; },
          LocalPlace{local.nodes, *local.place, 1});
      train(state, 1);
      saves.start(state, SaveTo::kNodes);
      rethrow(saves.take());
      train(state, 1);
      saves.start(state, SaveTo::kNodes);
      train(state, 1);
      rethrow(saves.take());
    });
    RunConfig whole = c;
    whole.train.run_dir = (folder_ / "expected").string();
    fs::create_directories(RunFolder{whole.train.run_dir}.checkpoints());
    on_ranks(whole, [&](TrainState& state) {
      initialize(state);
      train(state, 2);
      save_checkpoint(state);
    });
    return tensors_of(checkpoint_of(whole, 2));
  }
  static void rethrow(const SaveOutcome& outcome) {
    if (outcome.failure) std::rethrow_exception(outcome.failure);
  }

  // Resumes in the layout of `c`, and returns the tensors; empty if there was nothing to resume from.
  std::map<std::string, Tensor> resume(const RunConfig& c) const {
    bool loaded = false;
    fs::remove_all(checkpoint_of(c, 2));
    on_ranks(c, [&](TrainState& state) {
      const LocalStart local = look_for_local(c, start_number(2), state.model.mesh);
      if (!local.choice) return;
      EXPECT_EQ(local.choice->step, 2);
      if (!load_local(state, local)) return;
      EXPECT_EQ(state.position.step, 2);
      save_checkpoint(state);
      if (state.model.mesh.is_first()) loaded = true;
    });
    return loaded ? tensors_of(checkpoint_of(c, 2)) : std::map<std::string, Tensor>();
  }

  std::vector<fs::path> nodes_of_run() const {
    std::vector<fs::path> nodes;
    for (const auto& run : fs::directory_iterator(folder_ / "local"))
      for (const auto& node : fs::directory_iterator(run)) nodes.push_back(node.path());
    std::ranges::sort(nodes);
    return nodes;
  }
};

struct Case {
  Degrees writes, reads;
  int written_per_node, read_per_node;
};
const std::vector<Case> kCases = {
    {{1, 4, 2, "ep_aware"}, {1, 4, 2, "ep_aware"}, 2, 2},
    {{1, 4, 2, "ep_aware"}, {1, 2, 1, "optimizer"}, 2, 1},
    {{2, 2, 2, "hierarchical"}, {1, 2, 2, "ep_aware", 1, 3}, 1, 1},
    {{1, 2, 2, "ep_aware", 1, 3}, {1, 1, 1, "none", 4, 1}, 2, 1},
    {{1, 3, 1, "ep_aware"}, {1, 6, 1, "ep_aware"}, 1, 2},
    // Nodes with other names, on one host: one for all of its ranks, and the first ones of more.
    {{1, 4, 2, "ep_aware"}, {1, 4, 2, "ep_aware"}, 1, 4},
    {{1, 4, 2, "ep_aware"}, {1, 2, 1, "optimizer"}, 2, 2},
    {{1, 4, 2, "ep_aware"}, {1, 4, 2, "ep_aware"}, 1, 2},
};

class LocalResumesIn : public LocalResumes, public ::testing::WithParamInterface<Case> {};

TEST_P(LocalResumesIn, GiveTheBitsThatWereSavedWhicheverNodeIsLost) {
  const Case& each = GetParam();
  const RunConfig writes = run_on_nodes(each.writes, "run", each.written_per_node);
  const RunConfig reads = run_on_nodes(each.reads, "run", each.read_per_node);
  const auto expected = save(writes);
  fs::copy(folder_ / "local", folder_ / "kept", fs::copy_options::recursive);
  const auto nodes = nodes_of_run();
  ASSERT_EQ(nodes.size(), static_cast<size_t>(each.writes.world() / each.written_per_node));
  for (size_t lost = 0; lost <= nodes.size(); ++lost) {
    if (lost < nodes.size()) fs::remove_all(nodes[lost]);
    expect_equal(resume(reads), expected, each.writes.text() + " lost " + std::to_string(lost));
    fs::remove_all(folder_ / "local");
    fs::copy(folder_ / "kept", folder_ / "local", fs::copy_options::recursive);
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, LocalResumesIn, ::testing::ValuesIn(kCases));

TEST_F(LocalResumes, KeepOneCheckpointAndACopyOfItOnTheNextNode) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 2);
  save(c);
  for (const fs::path& node : nodes_of_run()) {
    size_t steps = 0, files = 0;
    for (const auto& step : fs::directory_iterator(node / "attempt-001")) {
      ++steps;
      for (const auto& file : fs::directory_iterator(step.path())) files += file.path().extension() == ".safetensors";
    }
    EXPECT_EQ(steps, 1u);
    EXPECT_EQ(files, 4u);
  }
}

TEST_F(LocalResumes, ACopyServesForAFileThatIsGone) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 2);
  const auto expected = save(c);
  fs::remove(nodes_of_run()[0] / "attempt-001" / "step-00000002" / "pieces-00001-00000.safetensors");
  expect_equal(resume(c), expected, "a file");
}

// Changes a byte of a piece.
void damage_piece(const fs::path& file, size_t from_end = 3) {
  std::string text = read_file(file);
  text[text.size() - from_end] = static_cast<char>(text[text.size() - from_end] ^ 1);
  fs::remove(file);
  std::ofstream(file) << text;
}

TEST_F(LocalResumes, ACopyServesForAPieceThatIsDamagedAsLongAsOneIsInOrder) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 1);
  const auto expected = save(c);
  const auto nodes = nodes_of_run();
  const auto file_of = [&](size_t node, int writer) {
    return nodes[node] / "attempt-001" / "step-00000002" / (prefix_of_writer(writer) + "-00000.safetensors");
  };
  fs::copy(folder_ / "local", folder_ / "kept", fs::copy_options::recursive);
  // The same nodes; half as many ranks, which need what was sent to them; and one node, which has all folders.
  for (const auto& [reads, per_node] : std::vector<std::pair<Degrees, int>>{
           {{1, 4, 2, "ep_aware"}, 1}, {{1, 2, 1, "optimizer"}, 1}, {{1, 4, 2, "ep_aware"}, 4}}) {
    const std::string where = reads.text() + " on nodes of " + std::to_string(per_node);
    damage_piece(file_of(0, 0));
    damage_piece(file_of(3, 3));
    testing::internal::CaptureStderr();
    const auto found = resume(run_on_nodes(reads, "run", per_node));
    const std::string said = testing::internal::GetCapturedStderr();
    expect_equal(found, expected, where);
    EXPECT_SAYS(said, "the local checkpoint of step 2: a file of node ");
    EXPECT_SAYS(said, "damaged: tensor ");
    EXPECT_SAYS(said, "; another copy takes its place");
    if (reads.world() == 4 && per_node == 1) {
      EXPECT_SAYS(said, "; another copy takes its place, as for 1 more file(s) that are damaged");
    }
    EXPECT_EQ(said.find("passing over"), std::string::npos) << said;
    fs::remove_all(folder_ / "local");
    fs::copy(folder_ / "kept", folder_ / "local", fs::copy_options::recursive);
  }
  damage_piece(file_of(0, 0));
  damage_piece(file_of(1, 0));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(resume(c).empty());
  EXPECT_SAYS(testing::internal::GetCapturedStderr(), "pieces-00000-00000.safetensors is in order on no other node");
}

// Each of two ranks reads half of what the second of three wrote. The first rank's node has the copy, in the folder of
// the third node, and the second rank's node has the damaged original.
TEST_F(LocalResumes, ACopyIsHashedByEachNodeThatReadsAPartOfIt) {
  const auto expected = save(run_on_nodes({1, 3, 1, "ep_aware"}, "run", 1));
  const RunConfig reads = run_on_nodes({1, 2, 1, "ep_aware"}, "run", 1);
  fs::copy(folder_ / "local", folder_ / "kept", fs::copy_options::recursive);
  const fs::path file = nodes_of_run()[1] / "attempt-001" / "step-00000002" / "pieces-00001-00000.safetensors";
  constexpr size_t kParts = 16;
  const size_t bytes = fs::file_size(file);
  for (size_t part = 0; part < kParts; ++part) {
    damage_piece(file, 3 + part * bytes / (kParts + 1));
    expect_equal(resume(reads), expected, std::to_string(part));
    fs::remove_all(folder_ / "local");
    fs::copy(folder_ / "kept", folder_ / "local", fs::copy_options::recursive);
  }
}

TEST_F(LocalResumes, AStateOfAnotherStepThanItsFolderIsPassedOver) {
  const RunConfig c = run_on_nodes({1, 2, 1, "ep_aware"}, "run", 1);
  save(c);
  for (const fs::path& node : nodes_of_run()) {
    const fs::path folder = node / "attempt-001" / "step-00000003";
    fs::rename(node / "attempt-001" / "step-00000002", folder);
    std::string where = read_file(folder / kWhereName);
    const std::string step = "\"step\": 2";
    where.replace(where.find(step), step.size(), "\"step\": 3");
    std::ofstream(folder / kWhereName) << where;
  }
  on_ranks(c, [&](TrainState& state) {
    const LocalStart local = look_for_local(c, start_number(2), state.model.mesh);
    ASSERT_TRUE(local.choice);
    EXPECT_EQ(local.choice->step, 3);
    EXPECT_FALSE(load_local(state, local));
  });
}

TEST_F(LocalResumes, FoldersOfNodesThatAreNotInTheJobAreLeftToTheFirstNodeOfTheirHost) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 1);
  save(c);
  on_ranks(run_on_nodes({1, 4, 2, "ep_aware"}, "run", 2), [&](TrainState& state) {
    const RunConfig& now = state.config;
    const LocalStart local = look_for_local(now, start_number(2), state.model.mesh);
    std::vector<std::string> left;
    for (const LocalStore& store : local.left) left.push_back(store.root().string());
    const auto nodes = nodes_of_run();
    const std::vector<std::string> expected = {nodes[2].string(), nodes[3].string()};
    EXPECT_EQ(left, state.model.mesh.is_first() ? expected : std::vector<std::string>());
  });
}

TEST_F(LocalResumes, TwoLostNeighboursOrAnotherRunLeaveNothingToResumeFrom) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 1);
  save(c);
  RunConfig copy = c;
  copy.train.run_dir = (folder_ / "copy").string();
  fs::copy(c.train.run_dir, copy.train.run_dir, fs::copy_options::recursive);
  EXPECT_TRUE(resume(copy).empty());
  EXPECT_EQ(nodes_of_run().size(), 4u);
  fs::remove_all(nodes_of_run()[3]);
  fs::remove_all(nodes_of_run()[0]);
  EXPECT_TRUE(resume(c).empty());
  fs::remove_all(folder_ / "local");
  EXPECT_TRUE(resume(c).empty());
}

TEST_F(LocalResumes, APathWrittenInAnotherWayIsTheSameRunAndADamagedRecordStopsNoStart) {
  RunConfig c = run_on_nodes({1, 2, 1, "ep_aware"}, "run", 1);
  const auto expected = save(c);
  fs::create_directory_symlink(folder_ / "run", folder_ / "link");
  for (const char* name : {"run/", "./run", "link"}) {
    RunConfig other = c;
    other.train.run_dir = (folder_ / name).string();
    expect_equal(resume(other), expected, name);
  }
  std::ofstream(folder_ / "run" / "where.json") << "{";
  EXPECT_TRUE(resume(c).empty());
}

TEST_F(LocalResumes, ADamagedOneIsPassedOver) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 2);
  save(c);
  for (const char* name : {"pieces-00002-00000.safetensors", "pieces-00002.json"}) {
    std::map<fs::path, std::string> before;
    for (const fs::path& node : nodes_of_run()) {
      const fs::path file = node / "attempt-001" / "step-00000002" / name;
      if (!fs::exists(file)) continue;
      before[file] = read_file(file);
      std::string text = before[file];
      text[text.size() - 3] = static_cast<char>(text[text.size() - 3] ^ 1);
      std::ofstream(file) << text;
    }
    EXPECT_EQ(before.size(), 2u);
    EXPECT_TRUE(resume(c).empty()) << name;
    for (const auto& [file, text] : before) std::ofstream(file) << text;
  }
  EXPECT_FALSE(resume(c).empty());
}

TEST_F(LocalResumes, AFailureCostsThatCheckpointAndTheOneBeforeStays) {
  const RunConfig c = run_on_nodes({1, 4, 2, "ep_aware"}, "run", 2);
  const auto expected = save(c);
  on_ranks(c, [&](TrainState& state) {
    initialize(state);
    const LocalStart local = look_for_local(c, start_number(2), state.model.mesh);
    BackgroundSave saves(
        state, [](const SaveOutcome&) {}, LocalPlace{local.nodes, *local.place, 2});
    train(state, 3);
    // A file is in the place of the folder of one node.
    const fs::path root = local.place->root();
    if (state.model.mesh.rank() == 2) {
      fs::rename(root, root.string() + ".away");
      std::ofstream(root) << "x";
    }
    state.model.mesh.world().all().barrier();
    saves.start(state, SaveTo::kNodes);
    EXPECT_THROW(rethrow(saves.take()), IoError);
    state.model.mesh.world().all().barrier();
    if (state.model.mesh.rank() == 2) {
      fs::remove(root);
      fs::rename(root.string() + ".away", root);
    }
  });
  expect_equal(resume(c), expected, "after a failure");
}

TEST_F(LocalResumes, AFolderThatCannotBeUsedIsRefusedAtTheStart) {
  RunConfig c = run_on_nodes({1, 2, 1, "ep_aware"}, "run", 1);
  std::ofstream(folder_ / "file") << "x";
  c.checkpoint.local_dir = (folder_ / "file" / "local").string();
  on_ranks(c, [&](TrainState& state) {
    const auto refusal = message_of<Error>([&] { look_for_local(c, start_number(1), state.model.mesh); });
    EXPECT_SAYS(refusal, "checkpoint.local_dir (" + c.checkpoint.local_dir + ") cannot be used on node ");
    EXPECT_SAYS(refusal, (folder_ / "file").string() + " is no folder");
  });
}

}  // namespace
}  // namespace athanor::local_resume_test
