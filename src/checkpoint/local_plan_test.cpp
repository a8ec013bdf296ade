#include "checkpoint/local_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::local_plan_test {
namespace {

using Parts = std::vector<std::vector<LocalPart>>;

// Two ranks on each node, whose pieces the next node has, too.
Parts whole(int nodes, int64_t step, int64_t attempt = 1) {
  Parts parts(static_cast<size_t>(nodes));
  for (int node = 0; node < nodes; ++node) {
    const int before = (node + nodes - 1) % nodes;
    parts[static_cast<size_t>(node)] = {
        {step, attempt, 2 * nodes, {2 * node, 2 * node + 1, 2 * before, 2 * before + 1}}};
  }
  return parts;
}

std::optional<LocalChoice> choose(const Parts& parts, int64_t above = -1, int64_t attempt = 1) {
  std::vector<std::string> notes;
  return choose_local(parts, above, attempt, notes);
}

TEST(LocalPlan, AnyNodeMayBeLostButNotTwoNeighbours) {
  for (int nodes : {2, 3, 5}) {
    for (int lost = 0; lost < nodes; ++lost) {
      Parts parts = whole(nodes, 10);
      parts[static_cast<size_t>(lost)].clear();
      const auto choice = choose(parts);
      ASSERT_TRUE(choice) << nodes << " " << lost;
      for (const auto& holders : choice->holders)
        for (const int holder : holders) EXPECT_NE(holder, lost);
      parts[static_cast<size_t>((lost + 1) % nodes)].clear();
      std::vector<std::string> notes;
      EXPECT_FALSE(choose_local(parts, -1, 1, notes));
      if (nodes > 2) {
        EXPECT_EQ(notes, std::vector{fmt::format("the local checkpoint of step 10 is not whole: the pieces of 2 of its "
                                                 "{} ranks are on no node, the first of them rank {}",
                                                 2 * nodes, 2 * lost)});
      }
    }
  }
}

TEST(LocalPlan, TakesTheNewestWholeStepAboveTheOtherOfThisBranchOnly) {
  Parts parts = whole(3, 10);
  for (size_t node = 0; node < 3; ++node) {
    parts[node].push_back(whole(3, 20)[node].front());
    if (node == 0) parts[node].push_back(whole(3, 30)[node].front());  // a job was killed while nodes committed it
  }
  EXPECT_EQ(choose(parts)->step, 20);
  EXPECT_EQ(choose(parts, 19)->step, 20);
  EXPECT_FALSE(choose(parts, 20));
  EXPECT_FALSE(choose(parts, -1, 2));
}

TEST(LocalPlan, PiecesOfTwoAttemptsOrOfTwoNumbersOfRanksMakeNoCheckpoint) {
  Parts parts = whole(2, 10);
  parts[0] = whole(2, 10, 2)[0];
  EXPECT_EQ(choose(parts)->attempt, 2);  // each is whole by its copies
  parts[0][0].kept = {0, 1};
  parts[1][0].kept = {2, 3};
  EXPECT_FALSE(choose(parts));
  parts[1][0].attempt = 2;
  EXPECT_TRUE(choose(parts));
  parts[1][0].writers = 5;
  EXPECT_FALSE(choose(parts));
}

TEST(LocalPlan, ATextOfAChoiceGivesTheChoice) {
  const auto choice = *choose(whole(3, 10));
  EXPECT_EQ(LocalChoice::from_text(choice.to_text()), choice);
  const std::vector<FileMove> moves = {{0, 2, {"a", "b"}}, {1, 0, {}}};
  EXPECT_EQ(moves_of_text(text_of_moves(moves)), moves);
}

TEST(LocalPlan, EachNodeGetsWhatItNeedsOnceFromANodeThatHasIt) {
  std::mt19937 draw(3);
  for (int trial = 0; trial < 50; ++trial) {
    const int nodes = 2 + static_cast<int>(draw() % 6);
    const Parts parts = whole(nodes, 10);
    const LocalChoice choice = *choose(parts);
    std::vector<std::vector<std::string>> needed(static_cast<size_t>(nodes));
    std::set<std::pair<int, std::string>> expected;
    for (int node = 0; node < nodes; ++node) {
      const auto& kept = parts[static_cast<size_t>(node)][0].kept;
      for (int writer = 0; writer < 2 * nodes; ++writer) {
        if (draw() % 2 || std::ranges::count(kept, writer)) continue;
        const std::string file = prefix_of_writer(writer) + "-00000.safetensors";
        for (int rank = 0; rank < 2; ++rank) needed[static_cast<size_t>(node)].push_back(file);
        expected.emplace(node, file);
      }
    }
    int last = 0;
    std::set<std::pair<int, int>> senders;  // distance and sender
    for (const auto& [from, to, files] : plan_moves(choice, needed)) {
      const int distance = (to - from + nodes) % nodes;
      EXPECT_GE(distance, last);
      EXPECT_TRUE(senders.emplace(distance, from).second);
      last = distance;
      for (const auto& file : files) {
        EXPECT_EQ(expected.erase({to, file}), 1u);
        EXPECT_TRUE(std::ranges::count(parts[static_cast<size_t>(from)][0].kept, writer_of_file(file)));
      }
    }
    EXPECT_TRUE(expected.empty());
  }
}

TEST(LocalPlan, AFileThatItsOnlyNodeLacksIsNamed) {
  const LocalChoice choice{10, 1, {{0}, {0, 1}}};
  EXPECT_EQ(plan_moves(choice, {{"pieces-00001-00000.safetensors"}, {}}),
            (std::vector<FileMove>{{1, 0, {"pieces-00001-00000.safetensors"}}}));
  EXPECT_EQ(message_of<CheckpointError>([&] {
              plan_moves(choice, {{"pieces-00000-00000.safetensors"}, {}});
            }),
            "pieces-00000-00000.safetensors is in order on no other node");
  EXPECT_THROW(
      plan_moves(choice, {{"pieces-00001-00000.safetensors"}, {}}, {{{1, "pieces-00001-00000.safetensors"}, 1}}),
      CheckpointError);
  EXPECT_THROW(plan_moves(choice, {{"pieces-00002-00000.safetensors"}, {}}), CheckpointError);
  EXPECT_THROW(plan_moves(choice, {{"pieces--00000.safetensors"}, {}}), CheckpointError);
}

TEST(LocalPlan, ACopyThatIsOfNoUseIsNotSentAndANodeMayHaveAnother) {
  const std::string file = "pieces-00000-00000.safetensors";
  const LocalChoice choice{10, 1, {{0, 0, 1}}};
  const std::vector<std::vector<std::string>> needed = {{}, {}, {file}};
  EXPECT_EQ(plan_moves(choice, needed, {{{0, file}, 1}}), (std::vector<FileMove>{{0, 2, {file}}}));
  EXPECT_EQ(plan_moves(choice, needed, {{{0, file}, 2}}), (std::vector<FileMove>{{1, 2, {file}}}));
  EXPECT_THROW(plan_moves(choice, needed, {{{0, file}, 2}, {{1, file}, 1}}), CheckpointError);
}

}  // namespace
}  // namespace athanor::local_plan_test
