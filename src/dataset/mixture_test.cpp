#include "dataset/mixture.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "dataset/loader.h"
#include "prepare/testing/data_test.h"

namespace athanor::mixture_test {
namespace {

// Three sources of 40, 60 and 100 instances of two tokens. The first token is the source's letter, the second the
// instance's number.
class Mixing : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    prepare_source("a", 40);
    prepare_source("b", 60);
    prepare_source("c", 100);
  }

  void prepare_source(const std::string& name, int num_instances, int64_t seq_len = 2) const {
    std::vector<std::string> rows;
    std::string text;
    for (int i = 0; i < num_instances; ++i) text += nlohmann::json{{"text", name}}.dump() + "\n";  // "a", end, "a", end
    auto made = options({write(name + ".jsonl", text).string()}, seq_len);
    made.out = folder_ / name;
    made.overwrite = true;
    prepare(made);
  }
  MixtureSource source(const std::string& name, double weight) const {
    return {name, Dataset::open(folder_ / name, "train"), weight};
  }
  Mixture mixture(const std::vector<std::pair<std::string, double>>& weights) const {
    std::vector<MixtureSource> sources;
    for (const auto& [name, weight] : weights) sources.push_back(source(name, weight));
    return Mixture(std::move(sources));
  }
  // Returns the letters of the next `count` samples; `ledger` advances.
  static std::string letters(const Mixture& mixture, DataLedger& ledger, int count, int64_t batch_size = 1,
                             int num_threads = 1) {
    Loader loader(mixture, 5, ledger, batch_size, num_threads, 3);
    std::string all;
    for (int i = 0; i < count; ++i) {
      const Batch batch = loader.next();
      for (size_t t = 0; t < batch.tokens.size(); t += 2) all += static_cast<char>(batch.tokens[t]);
      ledger = batch.next;
    }
    return all;
  }
  static std::map<std::string, DataCursor> cursors(const DataLedger& ledger) {
    std::map<std::string, DataCursor> all;
    for (const auto& [hash, account] : ledger.sources) all[account.name] = account.cursor;
    return all;
  }
};

TEST_F(Mixing, EachSourceHasItsShareOfEveryBatchAndTheLedgerSaysSo) {
  const auto mixed = mixture({{"a", 1}, {"b", 2}, {"c", 5}});
  DataLedger ledger;
  for (int step = 1; step <= 5; ++step) {
    const std::string drawn = letters(mixed, ledger, 1, 8);
    EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'a'), 1);
    EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'b'), 2);
    EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'c'), 5);
    EXPECT_EQ(cursors(ledger)["b"], (DataCursor{0, 2 * step}));
  }
  EXPECT_EQ(describe_position(ledger).find("a: epoch 0, instance 5 of 40") == std::string::npos, false);
}

TEST_F(Mixing, TheOrderDependsOnNeitherThreadsNorBatchesNorTheListing) {
  DataLedger one, other, third;
  const auto expected = letters(mixture({{"a", 1}, {"b", 2}, {"c", 4}}), one, 70);
  EXPECT_EQ(letters(mixture({{"c", 4}, {"a", 1}, {"b", 2}}), other, 70, 1, 4), expected);
  EXPECT_EQ(letters(mixture({{"a", 10}, {"b", 20}, {"c", 40}}), third, 7, 10, 3), expected);
  EXPECT_EQ(one, other);
  EXPECT_EQ(one, third);
}

TEST_F(Mixing, GoingOnFromAnyLedgerGivesTheSamplesThatWouldHaveCome) {
  const auto mixed = mixture({{"a", 1}, {"b", 2}, {"c", 4}});
  DataLedger whole;
  const auto expected = letters(mixed, whole, 100);
  for (const int cut : {1, 3, 50, 99}) {
    DataLedger ledger;
    const auto begin = letters(mixed, ledger, cut);
    EXPECT_EQ(begin + letters(mixed, ledger, 100 - cut), expected);
    EXPECT_EQ(ledger, whole);
  }
}

TEST_F(Mixing, AChangedMixRepeatsNoSampleOfASourceThatStays) {
  DataLedger ledger;
  letters(mixture({{"a", 1}, {"b", 1}}), ledger, 20);
  EXPECT_EQ(cursors(ledger)["a"], (DataCursor{0, 10}));
  letters(mixture({{"a", 3}, {"c", 1}}), ledger, 20);
  EXPECT_EQ(cursors(ledger)["a"], (DataCursor{0, 25})) << "it continued where it was";
  EXPECT_EQ(cursors(ledger)["b"], (DataCursor{0, 10})) << "kept for when it comes back";
  EXPECT_EQ(cursors(ledger)["c"], (DataCursor{0, 5}));
  const auto drawn = letters(mixture({{"b", 1}}), ledger, 1);
  EXPECT_EQ(cursors(ledger)["b"], (DataCursor{0, 11}));
  EXPECT_EQ(drawn, "b");
}

TEST_F(Mixing, AMovedFolderIsTheSameSourceAndOtherDataUnderItsNameIsRefused) {
  DataLedger ledger;
  letters(mixture({{"a", 1}}), ledger, 10);
  std::filesystem::rename(folder_ / "a", folder_ / "m");
  letters(mixture({{"m", 1}}), ledger, 1);
  EXPECT_EQ(cursors(ledger)["m"], (DataCursor{0, 11}));
  prepare_source("m", 41);
  EXPECT_SAYS(refusal<DataError>([&] {
                mixture({{"m", 1}}).enter(ledger);
              }),
              "holds other data than this run has drawn from under that name (40 instances of 2 tokens then, 41 of 2 "
              "now)");
}

TEST_F(Mixing, ASourceThatGrowsRepeatsNothingAndMissesNothing) {
  DataLedger ledger;
  std::string drawn = letters(mixture({{"a", 1}}), ledger, 25);
  for (const char* name : {"b", "c"}) {  // it grows twice
    auto adding = options({(folder_ / (std::string(name) + ".jsonl")).string()}, 2);
    adding.out = folder_ / "a";
    adding.add = true;
    prepare(adding);
    drawn += letters(mixture({{"a", 1}}), ledger, 25, 1, 2);
  }
  drawn += letters(mixture({{"a", 1}}), ledger, 200 - 75);
  EXPECT_EQ(cursors(ledger)["a"], (DataCursor{1, 0}));
  for (const auto& [letter, count] : std::map<char, int64_t>{{'a', 40}, {'b', 60}, {'c', 100}}) {
    EXPECT_EQ(std::count(drawn.begin(), drawn.end(), letter), count);
  }
  EXPECT_EQ(drawn.substr(0, 40), std::string(40, 'a')) << "the epoch continues before it takes what was added";
  EXPECT_NE(letters(mixture({{"a", 1}}), ledger, 40), std::string(40, 'a')) << "the next one shuffles all";
  EXPECT_EQ(ledger.sources.begin()->second.tokens_drawn(), 240 * 2);
}

TEST_F(Mixing, SourcesThatCannotBeMixedAreRefused) {
  prepare_source("long", 40, 4);
  EXPECT_SAYS(refusal<DataError>([&] { mixture({{"a", 1}, {"long", 1}}); }), "instances of one length");
  std::filesystem::copy(folder_ / "a", folder_ / "copy");
  EXPECT_SAYS(refusal<DataError>([&] { mixture({{"a", 1}, {"copy", 1}}); }), "hold the same instances");
  EXPECT_SAYS(refusal<ConfigError>([&] { mixture({}); }), "the mix is empty");
}

}  // namespace
}  // namespace athanor::mixture_test
