#include "checkpoint/local_store.h"

#include <fstream>

#include "base/files.h"
#include "base/testing/folder_test.h"
#include "checkpoint/local_listing.h"

namespace athanor::local_store_test {
namespace {

namespace fs = std::filesystem;

class LocalStores : public FolderTest {
 protected:
  LocalRun run(const std::string& id = "0123456789abcdef") const { return {id, folder_ / "run", folder_ / "local"}; }
  LocalStore store(const std::string& node = "n1") const { return {run(), node}; }
  void add(const LocalStore& to, int64_t step) const {
    to.begin(3, step);
    write_file_atomically(to.staging(3, step) / "pieces-00000.json", "x");
    to.commit({step, 3, 4, {0, 1, 2}}, {{{"n1", {0, 1}}, {"n0", {2}}}, "n2"});
  }
  static std::vector<LocalPart> list(const LocalStore& of, size_t num_notes = 0) {
    std::vector<std::string> notes;
    auto parts = of.list(notes);
    EXPECT_EQ(notes.size(), num_notes) << (notes.empty() ? "" : notes.front());
    return parts;
  }
};

TEST_F(LocalStores, WhatWasCommittedIsListedAndWhatWasNotIsNot) {
  EXPECT_TRUE(list(store()).empty());
  add(store(), 5);
  add(store(), 12);
  store().begin(3, 20);
  const std::vector<LocalPart> expected = {{12, 3, 4, {0, 1, 2}}, {5, 3, 4, {0, 1, 2}}};
  EXPECT_EQ(list(store()), expected);
  EXPECT_TRUE(list(store("n2")).empty());
}

TEST_F(LocalStores, OnlyTheNewestIsKeptAndTheEndRemovesWhatIsOfThisRunAndNode) {
  add(store(), 5);
  store().begin(4, 7);
  add(store(), 12);
  add(store("n2"), 12);
  const LocalStore other({"00000000aaaaaaaa", folder_ / "other", folder_ / "local"}, "n1");
  add(other, 1);
  store().keep_only(3, 12);
  EXPECT_EQ(list(store()).size(), 1u);
  EXPECT_FALSE(fs::exists(store().staging(4, 7)));
  store().remove_all();
  EXPECT_FALSE(fs::exists(store().root()));
  EXPECT_EQ(list(store("n2")).size(), 1u);
  store("n2").remove_all();
  EXPECT_FALSE(fs::exists(store().root().parent_path()));
  EXPECT_EQ(list(other).size(), 1u);
}

TEST_F(LocalStores, AFolderThatIsOfAnotherRunOrCannotBeReadIsNotedAndLeftAlone) {
  add(store(), 5);
  LocalRun moved = run();
  moved.run_dir = folder_ / "elsewhere";
  EXPECT_TRUE(list(LocalStore(moved, "n1"), 1).empty());
  const fs::path file = store().path(3, 5) / "where.json";
  const std::string text = read_file(file);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(file) << changed;
    EXPECT_TRUE(list(store(), 1).empty()) << to;
  };
  with("{", "");
  with("\"version\": 1", "\"version\": 2");
  with("\"writers\": 4", "\"writers\": -4");
  with("\"writers\": 4", "\"writers\": 1e300");
  with("\"writers\": 4", "\"writers\": 99999999999");
  with("\"writers\": 4", "\"writers\": 2");  // it has pieces of writer 2
  with("\"step\": 5", "\"step\": 6");
  with("\"step\": 5", "\"step\": \"5\"");
  with("\"attempt\": 3", "\"attempt\": 4");
  with("\"pieces\": [", "\"pieces\": [7,");
  with("\"run\"", "\"ran\"");
  fs::remove(file);
  EXPECT_TRUE(list(store()).empty());
  EXPECT_TRUE(fs::exists(store().path(3, 5) / "pieces-00000.json"));
}

TEST_F(LocalStores, ARunsFolderNamesItsIdAndACopyOfItDoesNot) {
  std::string note;
  EXPECT_EQ(read_local_run(folder_ / "run", note).id, "");
  fs::create_directories(folder_ / "run");
  write_local_run(run(), 3, {{"n1", "host", "n2", {0, 1}}, {"n2", "host", "n1", {2, 3}}});
  EXPECT_EQ(read_local_run(folder_ / "run", note), run());
  EXPECT_EQ(read_local_run(folder_ / "run" / "..", note).id, "");
  EXPECT_EQ(note, "");
  fs::copy(folder_ / "run", folder_ / "copy");
  EXPECT_EQ(read_local_run(folder_ / "copy", note).id, "");
  EXPECT_EQ(note, (folder_ / "copy" / "where.json").string() + " is of the run in " + (folder_ / "run").string() +
                      ": its local checkpoints are not used here");
  std::ofstream(folder_ / "run" / "where.json") << "[]";
  EXPECT_THROW(read_local_run(folder_ / "run", note), CheckpointError);
}

TEST(LocalRunIds, AreDifferent) { EXPECT_NE(new_local_run_id(), new_local_run_id()); }

TEST_F(LocalStores, AListingSaysWhereTheyAreRecordedAndWhatThisHostHas) {
  fs::create_directories(folder_ / "run");
  EXPECT_FALSE(list_local(folder_ / "run"));
  write_local_run(run(), 3, {{"n1", "h1", "n2", {0, 1}}, {"n2", "h2", "n1", {2, 3}}});
  add(store(), 5);
  const auto part = list_local(folder_ / "run");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->nodes, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(part->here, (std::vector<LocalHere>{{5, 3, 4, 3}}));
  EXPECT_EQ(describe_local(*part), "local checkpoints: recorded on 2 nodes (n1, n2) in " +
                                       (folder_ / "local" / "athanor-0123456789abcdef").string() +
                                       "; on this host: step 5 of attempt 3, part (pieces of 3 of 4 ranks)");
  const LocalStore other = store("n2");
  other.begin(3, 5);
  other.commit({5, 3, 4, {2, 3}}, {{{"n2", {2, 3}}}, "n1"});
  EXPECT_EQ(list_local(folder_ / "run")->here, (std::vector<LocalHere>{{5, 3, 4, 4}}));
  EXPECT_SAYS(describe_local(*list_local(folder_ / "run")), "on this host: step 5 of attempt 3, whole");
  std::ofstream(folder_ / "run" / kWhereName) << "{";
  EXPECT_SAYS(describe_local(*list_local(folder_ / "run")), "where.json is not a JSON object");
}

}  // namespace
}  // namespace athanor::local_store_test
