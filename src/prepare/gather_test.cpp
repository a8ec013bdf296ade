#include "prepare/gather.h"

#include <fmt/core.h>

#include <atomic>
#include <cstring>

#include "base/hash.h"
#include "dataset/npy.h"
#include "prepare/testing/data_test.h"

namespace athanor::gather_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSeqLen = 50, kRowBytes = 100, kNumRows = 6000;
constexpr uint64_t kBlocks = uint64_t{2} << 20;  // memory for reading and writing by one thread, in addition to the
                                                 // buckets
constexpr uint64_t kKiB = 1024;

TEST(GatherPlanning, AFewBucketsAreReadFromTheStreamAndManyAreScattered) {
  const auto plan = [](uint64_t memory) { return plan_gather(kNumRows, kRowBytes, kBlocks + memory, 1); };
  EXPECT_EQ(plan(600 * kKiB).num_buckets, 1);
  EXPECT_EQ(plan(300 * kKiB).num_buckets, 2);
  EXPECT_EQ(plan(300 * kKiB).buckets_per_pass, 0);
  EXPECT_EQ(plan(128 * kKiB).num_buckets, 5);
  EXPECT_EQ(plan(128 * kKiB).buckets_per_pass, 2);
  EXPECT_EQ(plan(128 * kKiB).num_passes(), 3);
  EXPECT_EQ(plan(64 * kKiB).num_passes(), plan(64 * kKiB).num_buckets);
  // A terabyte of tokens in 150 MiB still needs few passes.
  const auto large = plan_gather(int64_t{1} << 28, 4096, uint64_t{150} << 20, 2);
  EXPECT_LE(static_cast<uint64_t>(large.rows_per_bucket * 4096), uint64_t{150} << 20);
  EXPECT_LE(large.buffer_bytes * static_cast<uint64_t>(large.buckets_per_pass), uint64_t{150} << 20);
  EXPECT_LE(large.num_passes(), 4);
}

TEST(GatherPlanning, TooLittleMemoryIsRefusedWithWhatIsMissing) {
  EXPECT_SAYS(refusal<ConfigError>([] { plan_gather(10, 8 << 20, uint64_t{10} << 20, 1); }),
              "instances of 8.00MiB; give 14.00MiB more");
}

class Gather : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    fs::create_directories(folder_ / "shards");
    for (const auto& split :
         {place_shards("train", 0, 5000, 0, form_), place_shards("validation", 5000, 1000, 3, form_)}) {
      places_.insert(places_.end(), split.begin(), split.end());
    }
  }
  void add_tokens(TokenStream& stream) const {
    std::vector<uint32_t> tokens;
    uint32_t chunk = 0;
    for (uint32_t i = 0; i < kNumRows * kSeqLen + 7; ++i) {
      tokens.push_back((i * 2654435761u) >> 16);
      if (tokens.size() == 1000 + i % 77) {
        stream.append(0, chunk++, tokens);
        tokens.clear();
      }
    }
    stream.append(0, chunk, tokens);
    stream.finish();
  }
  PrepareJournal journal() const {
    return PrepareJournal(folder_ / "journal", nlohmann::json::object(), [](const SpilledChunk&) { return true; });
  }
  GatherOptions options(uint64_t memory, int num_threads = 1) const {
    return {form_,
            folder_ / "buckets",
            folder_ / "shards",
            "",
            kBlocks + memory + (num_threads - 1) * (kBlocks / 2),
            num_threads,
            [] {}};
  }
  // Returns {file: hash}, compared with the files.
  std::map<std::string, std::string> run(TokenStream& stream, const GatherOptions& options, PrepareJournal& journal) {
    std::map<std::string, std::string> hashes;
    for (const auto& [file, shard] : gather(stream, order_, places_, options, journal)) {
      hashes[file] = shard.hash;
      EXPECT_EQ(hash_file(folder_ / "shards" / file), shard.hash);
      EXPECT_EQ(hash_blocks(folder_ / "shards" / file, form_), shard.blocks);
    }
    return hashes;
  }
  std::map<std::string, std::string> run_anew(const GatherOptions& options) {
    for (const char* name : {"tokens", "buckets", "shards", "journal"}) fs::remove_all(folder_ / name);
    fs::create_directories(folder_ / "shards");
    TokenStream stream(folder_ / "tokens", 2);
    add_tokens(stream);
    auto made = journal();
    return run(stream, options, made);
  }

  const ShardForm form_{kSeqLen, 2, 70000};
  std::vector<ShardPlace> places_;
  const Permutation order_{kNumRows, 3, "prepare instances"};
};

TEST_F(Gather, RowRIsInstanceOrderOfR) {
  TokenStream stream(folder_ / "tokens", 2);
  add_tokens(stream);
  auto made = journal();
  run(stream, options(600 * kKiB), made);
  std::vector<std::byte> expected(kRowBytes), row(kRowBytes);
  for (const auto& place : places_) {
    const auto shard = NpyMatrix::open(folder_ / "shards" / place.file);
    ASSERT_EQ(shard.num_rows(), place.num_rows);
    for (int64_t i = 0; i < place.num_rows; ++i) {
      stream.copy(static_cast<int64_t>(order_(static_cast<uint64_t>(place.first_row + i))) * kSeqLen, kSeqLen,
                  expected.data());
      shard.read_row(i, row.data());
      ASSERT_EQ(row, expected) << place.file << " row " << i;
    }
  }
}

TEST_F(Gather, NoByteDependsOnMemoryOrThreads) {
  const auto expected = run_anew(options(600 * kKiB));
  EXPECT_EQ(expected.size(), 10u);
  EXPECT_EQ(expected.count("validation-00003.npy"), 1u);
  for (const uint64_t kib : {64, 70, 128, 200, 300}) {
    for (const int num_threads : {1, 3}) {
      EXPECT_EQ(run_anew(options(kib * kKiB, num_threads)), expected) << kib << " KiB, " << num_threads << " threads";
      EXPECT_TRUE(!fs::exists(folder_ / "buckets") || fs::is_empty(folder_ / "buckets"));
    }
  }
}

TEST_F(Gather, StoppedAnywhereAndGoneOnWithItWritesTheSameBytes) {
  const auto expected = run_anew(options(600 * kKiB));
  for (const uint64_t kib : {64, 128, 300, 600}) {
    for (const char* name : {"tokens", "buckets", "shards", "journal"}) fs::remove_all(folder_ / name);
    fs::create_directories(folder_ / "shards");
    std::vector<std::pair<SpilledChunk, uint32_t>> chunks;
    int num_stops = 0;
    for (int calls = 1; calls < 10000; ++calls) {
      // Each round is a new process, which knows only what is on the disk. The tokens are there again, as adopted ones
      // are.
      TokenStream stream(folder_ / "tokens", 2);
      add_tokens(stream);
      if (num_stops > 0 && fs::exists(folder_ / "scattered")) stream.remove();
      auto made = journal();
      auto stopping = options(kib * kKiB);
      std::atomic<int> left = calls;  // threads ask at once
      stopping.check_stop = [&left] {
        if (--left < 0) throw Error("stop");
      };
      try {
        EXPECT_EQ(run(stream, stopping, made), expected) << kib << " KiB";
        break;
      } catch (const Error& error) {
        ASSERT_STREQ(error.what(), "stop");
        ++num_stops;
        if (!stream.has_spill()) write("scattered", "");
      }
    }
    EXPECT_GT(num_stops, 3);
    fs::remove(folder_ / "scattered");
  }
}

TEST_F(Gather, AShardThatIsMissingOrCutOffIsWrittenAgain) {
  const auto expected = run_anew(options(600 * kKiB));
  fs::remove(folder_ / "shards" / "train-00001.npy");
  fs::resize_file(folder_ / "shards" / "train-00002.npy", 100);
  TokenStream stream(folder_ / "tokens", 2);
  add_tokens(stream);
  auto made = journal();
  EXPECT_EQ(run(stream, options(600 * kKiB), made), expected);
}

}  // namespace
}  // namespace athanor::gather_test
