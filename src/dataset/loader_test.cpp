#include "dataset/loader.h"

#include <chrono>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "prepare/testing/data_test.h"

namespace athanor::loader_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNumInstances = 53;

// Every instance begins with its number, so that the order can be seen.
class Loading : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    std::string text;
    for (char i = 0; i < kNumInstances; ++i) text += std::string(1, static_cast<char>('A' + i)) + "..";
    text.pop_back();  // the end-of-document token is there
    prepare(options({write("a.txt", text).string()}, 3));
    mixture_.emplace(std::vector<MixtureSource>{{"a", Dataset::open(folder_ / "out", "train")}});
    ASSERT_EQ(mixture_->sources()[0].dataset.num_instances(), kNumInstances);
  }

  std::vector<Batch> batches(int count, const DataLedger& start = {}, int64_t batch_size = 8, int num_threads = 1,
                             uint64_t seed = 5, int prefetch = 2) const {
    Loader loader(*mixture_, seed, start, batch_size, num_threads, prefetch);
    std::vector<Batch> all;
    for (int i = 0; i < count; ++i) all.push_back(loader.next());
    return all;
  }
  static std::vector<int32_t> tokens(const std::vector<Batch>& batches) {
    std::vector<int32_t> all;
    for (const auto& batch : batches) all.insert(all.end(), batch.tokens.begin(), batch.tokens.end());
    return all;
  }
  static std::vector<int32_t> first_tokens(const std::vector<Batch>& batches) {
    std::vector<int32_t> firsts;
    const auto all = tokens(batches);
    for (size_t i = 0; i < all.size(); i += 3) firsts.push_back(all[i]);
    return firsts;
  }

  // Reads each row from the disk.
  Dataset open_unverified() const {
    return Dataset::open(folder_ / "out", "train", std::make_shared<DataManifest>(read_data_manifest(folder_ / "out")),
                         std::make_shared<ShardAccess>(false));
  }

  DataLedger ledger_at(DataCursor cursor) const {
    DataLedger ledger = mixture_->enter({});
    ledger.sources.begin()->second.cursor = cursor;
    return ledger;
  }

  std::optional<Mixture> mixture_;
};

TEST_F(Loading, TheOrderDoesNotDependOnThreadsOrPrefetch) {
  const auto expected = tokens(batches(30));
  for (const int num_threads : {2, 5}) {
    for (const int prefetch : {1, 7}) EXPECT_EQ(tokens(batches(30, {}, 8, num_threads, 5, prefetch)), expected);
  }
}

TEST_F(Loading, TheFirstEpochReadsTheRowsAsTheyLieAndEachLaterOneInAnotherOrder) {
  const auto order = first_tokens(batches(3 * kNumInstances, {}, 1)),
             other = first_tokens(batches(2 * kNumInstances, {}, 1, 1, 6));
  const auto epoch = [](const std::vector<int32_t>& all, int number) {
    const auto begin = all.begin() + number * kNumInstances;
    return std::vector<int32_t>(begin, begin + kNumInstances);
  };
  std::vector<int32_t> lie;
  for (const auto& row : rows_of(folder_ / "out", "train")) lie.push_back(row[0]);
  EXPECT_EQ(epoch(order, 0), lie);
  EXPECT_EQ(epoch(other, 0), lie) << "of any seed";
  for (const int number : {1, 2}) {
    const auto there = epoch(order, number);
    EXPECT_EQ(std::set<int32_t>(there.begin(), there.end()).size(), static_cast<size_t>(kNumInstances));
    EXPECT_NE(there, epoch(order, number - 1));
  }
  EXPECT_NE(epoch(order, 1), epoch(other, 1)) << "another seed";
}

// The expected rows are those of Permutation, which the order is defined by.
TEST_F(Loading, ARunThatBeganInTheOldOrderKeepsItInEveryEpoch) {
  DataLedger old;
  old.order = DataOrder::kShuffledRows;
  const auto order = first_tokens(batches(2 * kNumInstances, old, 1));
  const auto rows = rows_of(folder_ / "out", "train");
  std::vector<int32_t> expected;
  for (const char* name : {"data epoch 0", "data epoch 1"}) {
    const Permutation permutation(kNumInstances, 5, name);
    for (uint64_t i = 0; i < kNumInstances; ++i) expected.push_back(rows[permutation(i)][0]);
  }
  EXPECT_EQ(order, expected);
  EXPECT_EQ(batches(1, old, 3)[0].next.order, DataOrder::kShuffledRows);
}

TEST_F(Loading, BatchesOfAnySizeCutTheSameSequence) {
  const auto expected = tokens(batches(240, {}, 1));
  EXPECT_EQ(tokens(batches(30, {}, 8)), expected) << "batches span epochs";
  EXPECT_EQ(tokens(batches(2, {}, 120)), expected) << "a batch may span several";
}

TEST_F(Loading, GoingOnFromAnyCursorGivesTheBatchesThatWouldHaveCome) {
  const auto whole = batches(20);
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    const auto rest = batches(static_cast<int>(whole.size() - i - 1), whole[i].next, 8, 3);
    for (size_t j = 0; j < rest.size(); ++j) {
      ASSERT_EQ(rest[j].tokens, whole[i + 1 + j].tokens) << "from batch " << i;
      ASSERT_EQ(rest[j].next, whole[i + 1 + j].next);
    }
  }
  EXPECT_EQ(whole[6].next.sources.begin()->second.cursor, (DataCursor{1, 7 * 8 - kNumInstances}));
  EXPECT_EQ(whole[6].next.sources.begin()->second.tokens_drawn(), 7 * 8 * 3);
}

TEST_F(Loading, ACursorBeyondTheDataIsRefused) {
  EXPECT_SAYS(refusal<DataError>([&] {
                batches(1, ledger_at({0, kNumInstances}));
              }),
              "no place (epoch 0, instance 53 of 53) in 53 instances");
  EXPECT_SAYS(refusal<DataError>([&] { batches(1, ledger_at({-1, 0})); }), "no place");
  EXPECT_SAYS(refusal<ConfigError>([&] { batches(1, {}, 0); }), "global_batch_size (0)");
}

TEST_F(Loading, WhatAThreadThrowsComesOutOfNext) {
  const auto shard = folder_ / "out" / "train-00000.npy";
  auto bytes = read_file(shard);
  bytes[bytes.size() - 1] = '\x7F';  // the last id
  write_file_atomically(shard, bytes);
  const Mixture damaged({{"a", open_unverified()}});
  Loader loader(damaged, 5, {}, kNumInstances, 2);
  EXPECT_TRUE(loader.failure());
  EXPECT_FALSE(loader.has_next());
  for (int i = 0; i < 2; ++i) {
    EXPECT_SAYS(refusal<DataError>([&] { loader.next(); }), "row 52, position 2: token id");
  }
}

TEST_F(Loading, WhetherTheNextBatchCanBeReadIsKnownBeforeItIsTaken) {
  const Mixture mixture({{"a", open_unverified()}});
  Loader loader(mixture, 5, {}, 8, 1, 1);
  const auto first = batches(1)[0].tokens;
  EXPECT_FALSE(loader.failure());
  EXPECT_FALSE(loader.failure());
  EXPECT_TRUE(loader.has_next());
  EXPECT_EQ(loader.next().tokens, first);
  fs::resize_file(folder_ / "out" / "train-00000.npy", 128);
  // A batch that was read ahead is still good.
  while (!loader.failure()) loader.next();
  EXPECT_SAYS(refusal<IoError>([&] { loader.next(); }), "it ends at byte 128 now");
}

TEST_F(Loading, ALoaderThatIsNotUsedEndsPromptly) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) Loader loader(*mixture_, 5, {}, 8, 4, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(DocumentLengths, ADocumentEndsAfterItsEndToken) {
  const auto lengths = [](std::vector<int32_t> tokens) {
    std::vector<int32_t> out;
    document_lengths(tokens.data(), static_cast<int64_t>(tokens.size()), 9, out);
    return out;
  };
  using Lengths = std::vector<int32_t>;
  EXPECT_EQ(lengths({1, 2, 9, 3, 9, 4}), (Lengths{3, 2, 1}));
  EXPECT_EQ(lengths({1, 2, 3}), (Lengths{3}));
  EXPECT_EQ(lengths({1, 9}), (Lengths{2}));
  EXPECT_EQ(lengths({9, 9, 1}), (Lengths{1, 1, 1}));
}

}  // namespace
}  // namespace athanor::loader_test
