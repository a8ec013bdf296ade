// Ends a run and begins it again as another process would, with nothing but what is on the disk.

#include <algorithm>
#include <atomic>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "documents/testing/compressed.h"
#include "prepare/partial_folder.h"
#include "prepare/prepare.h"
#include "prepare/testing/data_test.h"

namespace athanor::prepare_resume_test {
namespace {

namespace fs = std::filesystem;

class Resuming : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    for (int f = 0; f < 4; ++f) {
      std::string rows;
      for (int i = 0; i < 60; ++i) rows += row(f, i);
      const auto name = "c/" + std::to_string(f) + ".jsonl";
      if (f % 2) write(name, rows);
      if (f % 2 == 0) write(name + ".gz", gzip(rows));
    }
    options_ = options({(folder_ / "c").string()}, 16);
    options_.chunk_bytes = 1500;
    options_.shard_bytes = 2000;
    options_.validation_fraction = 0.1;
    options_.min_kept_text_bytes = 1;
    prepare(options_);
    expected_ = hashes(options_.out);
    options_.out = folder_ / "again";
  }
  static std::string row(int file, int i) {
    return nlohmann::json{
               {"text", fmt::format("file {} row {} {}", file, i, std::string(static_cast<size_t>(i % 37), '.'))}}
               .dump() +
           "\n";
  }
  static std::map<std::string, std::string> hashes(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) {
      all[entry.path().filename().string()] = hash_file(entry.path());
    }
    return all;
  }
  // Ends a run after it has asked `calls` times if it has to stop.
  bool stopped_after(int calls) {
    auto made = options_;
    std::atomic<int> left = calls;  // threads ask at once
    made.stopping = [&left] { return --left < 0; };
    try {
      prepare(made);
      return false;
    } catch (const PrepareStopped& stopped) {
      EXPECT_SAYS(stopped.what(), "run the same command again to continue");
      return true;
    }
  }
  fs::path partial() const { return folder_ / "again.partial"; }

  PrepareOptions options_;
  std::map<std::string, std::string> expected_;
};

TEST_F(Resuming, HoweverOftenItIsStoppedTheBytesAreTheSame) {
  int num_stops = 0;
  for (int calls = 0; stopped_after(calls); ++calls) {
    ++num_stops;
    EXPECT_FALSE(fs::exists(options_.out));
    options_.num_threads = 1 + num_stops % 3;
  }
  EXPECT_GT(num_stops, 5);
  EXPECT_EQ(hashes(options_.out), expected_);
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Resuming, WhatTheDiskLostOfTheSpillIsDoneAgain) {
  ASSERT_TRUE(stopped_after(12));
  const auto spill = read_file(partial() / "tokens");
  ASSERT_GT(spill.size(), 6000u);
  // The run stopped in an orderly way, so its chunks count as written; this removes the mark of that.
  auto journal = read_file(partial() / "journal");
  const auto mark = journal.rfind("\"synced\"");
  ASSERT_NE(mark, std::string::npos);
  journal.resize(journal.rfind('\n', mark) + 1);
  write("again.partial/journal", journal + "torn");
  std::string damaged = spill;
  for (size_t at = spill.size() / 3; at < spill.size() / 3 + 100; ++at) damaged[at] = '\0';
  damaged.resize(spill.size() - 1000);
  write("again.partial/tokens", damaged);
  ASSERT_TRUE(stopped_after(6));
  prepare(options_);
  EXPECT_EQ(hashes(options_.out), expected_);
}

TEST_F(Resuming, OtherOptionsAreNamedAndRestartThrowsTheOldWorkAway) {
  ASSERT_TRUE(stopped_after(8));
  options_.seq_len = 8;
  options_.seed = 3;
  const auto message = refusal<ConfigError>([&] { prepare(options_); });
  EXPECT_SAYS(message, "--seed 1 there, 3 now, --seq-len 16 there, 8 now");
  EXPECT_SAYS(message, "--restart");
  EXPECT_TRUE(fs::exists(partial()));
  options_.restart = true;
  EXPECT_EQ(prepare(options_).seq_len, 8);
}

TEST_F(Resuming, FilesThatChangedAreDoneAgainAndOthersAreNot) {
  ASSERT_TRUE(stopped_after(14));
  std::string rows;
  for (int i = 0; i < 50; ++i) rows += row(9, i);
  write("c/1.jsonl", rows);
  fs::remove(folder_ / "c/0.jsonl.gz");
  write("c/00.jsonl", rows + rows);
  const auto now = prepare(options_);
  auto fresh = options_;
  fresh.out = folder_ / "fresh";
  prepare(fresh);
  EXPECT_EQ(hashes(options_.out), hashes(fresh.out));
  EXPECT_EQ(now.documents, 60 + 60 + 50 + 100);
}

TEST_F(Resuming, InputsThatChangeWhileShardsAreWrittenMakeItStartThatOver) {
  auto made = options_;
  made.stopping = [&] { return fs::exists(partial() / "data" / "train-00003.npy"); };
  ASSERT_THROW(prepare(made), PrepareStopped);
  std::string rows;
  for (int i = 0; i < 50; ++i) rows += row(9, i);
  write("c/1.jsonl", rows);
  prepare(options_);
  auto fresh = options_;
  fresh.out = folder_ / "fresh";
  prepare(fresh);
  EXPECT_EQ(hashes(options_.out), hashes(fresh.out));
}

TEST_F(Resuming, ABadLineIsMendedAndTheRunGoesOn) {
  const auto good = read_file(folder_ / "c/3.jsonl");
  write("c/3.jsonl", good + "{\n");
  EXPECT_SAYS(refusal<DataError>([&] { prepare(options_); }), "c/3.jsonl:61: invalid JSON");
  EXPECT_FALSE(fs::exists(options_.out));
  EXPECT_TRUE(fs::exists(partial()));
  write("c/3.jsonl", good);
  std::atomic<int> num_chunks = 0;
  options_.stopping = [&] { return ++num_chunks > 1000000; };
  prepare(options_);
  EXPECT_EQ(hashes(options_.out), expected_);
}

TEST_F(Resuming, LittleWorkIsNotKeptAfterAnError) {
  write("c/3.jsonl", "{\n");
  options_.min_kept_text_bytes = 1 << 20;
  EXPECT_THROW(prepare(options_), DataError);
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(Resuming, TwoRunsDoNotShareAFolder) {
  const PartialFolder other(options_.out);
  const auto message = refusal<ConfigError>([&] { prepare(options_); });
  EXPECT_SAYS(message, "is being prepared by another process (process " + std::to_string(::getpid()));
}

TEST_F(Resuming, AFolderThatIsNotOursIsNotTouched) {
  write("again.partial/thesis.txt", "years of work");
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(options_); }), "contains something else; move it away");
  EXPECT_EQ(read_file(partial() / "thesis.txt"), "years of work");
}

TEST_F(Resuming, MemoryThatIsTooSmallIsRefusedWithTheNumberThatIsNeeded) {
  options_.memory_bytes = 1 << 20;
  const auto message = refusal<ConfigError>([&] { prepare(options_); });
  EXPECT_SAYS(message, "--memory 1.00MiB is too small");
  EXPECT_SAYS(message, "needs at least");
}

}  // namespace
}  // namespace athanor::prepare_resume_test
