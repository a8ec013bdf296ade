#include "dataset/dataset.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "dataset/npy.h"
#include "prepare/testing/data_test.h"

namespace athanor::dataset_test {
namespace {

namespace fs = std::filesystem;

class DatasetFiles : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    auto made = options({write("a.txt", std::string(999, 'a')).string()}, 10);
    made.shard_bytes = 128 + 40 * 20;
    made.validation_fraction = 0.1;
    prepare(made);
    out_ = made.out;
  }
  std::string refused_open(const std::string& split = "train") const {
    return refusal<DataError>([&] {
      const auto dataset = Dataset::open(out_, split);
      for (size_t i = 0; i < dataset.files().size(); ++i) dataset.check_file(i);
    });
  }
  void change(const std::string& name, size_t offset, char value) const {
    auto bytes = read_file(out_ / name);
    bytes.at(offset) = value;
    write_file_atomically(out_ / name, bytes);
  }
  // Replaces a text in the manifest.
  void replace(const std::string& what, const std::string& by) const {
    auto text = read_file(out_ / kDataManifestName);
    const auto at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    write_file_atomically(out_ / kDataManifestName, text.replace(at, what.size(), by));
  }

  // Reads rows without comparing their blocks.
  Dataset open_unverified() const {
    return Dataset::open(out_, "train", std::make_shared<DataManifest>(read_data_manifest(out_)),
                         std::make_shared<ShardAccess>(false));
  }

  fs::path out_;
};

TEST_F(DatasetFiles, ShardsAreBoundedAndRowsCountThroughThem) {
  const auto train = Dataset::open(out_, "train");
  EXPECT_EQ(train.num_instances(), 90);
  EXPECT_EQ(train.seq_len(), 10);
  EXPECT_EQ(train.vocab_size(), 257u);
  ASSERT_EQ(train.manifest().splits.at("train").files.size(), 3u);
  for (const auto& shard : train.manifest().splits.at("train").files) {
    EXPECT_LE(fs::file_size(out_ / shard.file), 128u + 800u);
  }
  const auto rows = rows_of(out_, "train");
  EXPECT_EQ(rows[0], std::vector<int32_t>(10, 'a'));
  train.verify();
  Dataset::open(out_, "validation").verify();
}

TEST_F(DatasetFiles, AMissingSplitShardOrFolderIsNamed) {
  EXPECT_SAYS(refused_open("test"), "no split \"test\", only train, validation");
  fs::remove(out_ / "train-00001.npy");
  EXPECT_SAYS(refused_open(), "train-00001.npy is missing");
  EXPECT_SAYS(refusal<DataError>([&] { Dataset::open(folder_ / "none", "train"); }), "none does not exist");
  EXPECT_SAYS(refusal<DataError>([&] { Dataset::open(folder_, "train"); }), "has no manifest.json");
}

TEST_F(DatasetFiles, AShardThatDiffersFromTheManifestIsNamed) {
  fs::copy_file(out_ / "train-00002.npy", out_ / "train-00000.npy", fs::copy_options::overwrite_existing);
  EXPECT_SAYS(refused_open(), "train-00000.npy: shape [10, 10], the manifest has [40, 10]; get it again");
  replace("uint16", "uint32");
  fs::copy_file(out_ / "train-00001.npy", out_ / "train-00000.npy", fs::copy_options::overwrite_existing);
  EXPECT_SAYS(refused_open(), "train-00000.npy: ids of 2 bytes, the manifest has uint32");
}

TEST_F(DatasetFiles, ACutOffShardIsNamedByByte) {
  const auto bytes = read_file(out_ / "train-00001.npy");
  write_file_atomically(out_ / "train-00001.npy", bytes.substr(0, 500));
  EXPECT_SAYS(refused_open(), "train-00001.npy: ends at byte 500");
}

TEST_F(DatasetFiles, AWrongChecksumIsFoundByVerify) {
  change("train-00001.npy", 200, 'b');
  const auto train = Dataset::open(out_, "train");
  EXPECT_SAYS(refusal<DataError>([&] { train.verify(); }), "train-00001.npy: damaged");
  Dataset::open(out_, "validation").verify();
  change("tokenizer.json", 5, 'X');
  EXPECT_SAYS(refusal<DataError>([&] { Dataset::open(out_, "validation").verify(); }), "tokenizer.json: damaged");
}

TEST_F(DatasetFiles, AShardIsOpenedWhenItIsReadAndHeldAgainstTheManifestThen) {
  fs::remove(out_ / "train-00001.npy");
  const auto train = Dataset::open(out_, "train");
  std::vector<int32_t> row(10);
  train.read(0, row.data());
  EXPECT_SAYS(refusal<DataError>([&] { train.read(40, row.data()); }), "train-00001.npy is missing");
  fs::copy_file(out_ / "train-00002.npy", out_ / "train-00001.npy");
  EXPECT_SAYS(refusal<DataError>([&] { train.read(40, row.data()); }), "train-00001.npy: shape [10, 10]");
}

TEST_F(DatasetFiles, AShardThatIsCutOffWhileItIsReadIsAnErrorWithItsByte) {
  const auto train = open_unverified();
  std::vector<int32_t> row(10);
  train.read(40, row.data());
  fs::resize_file(out_ / "train-00001.npy", 300);
  EXPECT_SAYS(refusal<IoError>([&] { train.read(79, row.data()); }),
              "train-00001.npy at byte 908: it ends at byte 300 now and had 928");
}

TEST_F(DatasetFiles, FilesAreNamedWithTheBytesTheyHave) {
  const auto train = Dataset::open(out_, "train");
  ASSERT_EQ(train.files().size(), 5u) << "the tokenizer, three shards and their checksums";
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(train.files()[i].num_bytes, fs::file_size(train.files()[i].path));
}

TEST_F(DatasetFiles, AnIdBeyondTheVocabularyIsNamedByRow) {
  const size_t offset = 128 + 7 * 20 + 3 * 2;  // header, rows, ids
  change("train-00001.npy", offset, '\x39');
  change("train-00001.npy", offset + 1, '\x30');
  const auto train = open_unverified();
  std::vector<int32_t> row(10);
  train.read(46, row.data());
  EXPECT_SAYS(refusal<DataError>([&] { train.read(47, row.data()); }),
              "train-00001.npy: row 7, position 3: token id 12345 is beyond the vocabulary of 257");
}

TEST_F(DatasetFiles, TheManifestReadsBackWhatWasWritten) {
  const auto text = read_file(out_ / kDataManifestName);
  EXPECT_EQ(data_manifest_text(parse_data_manifest(text, "m")), text);
}

TEST_F(DatasetFiles, AManifestOfVersion1IsReadAsOnePart) {
  auto manifest = read_data_manifest(out_);
  manifest.version = 1;
  const auto text = data_manifest_text(manifest);
  EXPECT_EQ(text.find("parts"), std::string::npos);
  const auto read = parse_data_manifest(text, "m");
  EXPECT_EQ(data_manifest_text(read), text);
  ASSERT_EQ(read.parts.size(), 1u);
  EXPECT_EQ(read.parts[0].instances, (std::map<std::string, int64_t>{{"train", 90}, {"validation", 10}}));
  write_file_atomically(out_ / kDataManifestName, text);
  EXPECT_EQ(Dataset::open(out_, "train").num_instances(), 90);
}

TEST_F(DatasetFiles, AManifestThatContradictsItselfIsRefused) {
  const auto text = read_file(out_ / kDataManifestName);
  const auto with = [&](const std::string& what, const std::string& by) {
    auto changed = text;
    EXPECT_NE(changed.find(what), std::string::npos) << what;
    changed.replace(changed.find(what), what.size(), by);
    return refusal<DataError>([&] { parse_data_manifest(changed, "m"); });
  };
  EXPECT_SAYS(with("\"instances\": 90", "\"instances\": 91"), "splits.train");
  EXPECT_SAYS(with("\"tokens\": 900", "\"tokens\": 901"), "90 instances of 10 tokens are not 901 tokens");
  EXPECT_SAYS(with("\"eos_id\": 256", "\"eos_id\": 257"), "257 is beyond the vocabulary of 257");
  EXPECT_SAYS(with("\"version\": 2", "\"version\": 3"),
              "3 is unknown, this program knows 1 to 2; prepare the data again");
  EXPECT_SAYS(with("\"documents\": 1,\n   \"tokens\"", "\"documents\": 2,\n   \"tokens\""),
              "have other documents together");
  EXPECT_SAYS(with("\"train\": 90", "\"train\": 89"), "have other instances of train together");
  EXPECT_SAYS(with("\"validation_fraction\": 0.1", "\"validation_fraction\": 1.5"), "must be in [0, 1)");
  EXPECT_SAYS(with("train-00000.npy", "../train.npy"), "not the name of a file");
  EXPECT_SAYS(with("\"seq_len\": 10", "\"seq_len\": 1"), "1 is not in [2,");
  EXPECT_SAYS(with("\"seq_len\": 10", "\"seq_len\": -10"), "seq_len");
  EXPECT_SAYS(with("uint16", "int8"), "must be uint16 or uint32");
  EXPECT_SAYS(with("{", ""), "m: ");
}

TEST_F(DatasetFiles, UnigramEntropyIsThatOfTheTargets) {
  // Two rows. The targets are the ids from position 1 on: b b c | b c c. H = ln 2.
  write("u/s.npy", npy_header(2, 2, 4) + std::string("a\0b\0b\0c\0x\0b\0c\0c\0", 16));
  write("u/tokenizer.json", "{}");
  DataManifest manifest;
  manifest.version = 1;  // that version has no parts
  manifest.tokenizer_file = "tokenizer.json";
  manifest.tokenizer_hash = hash_hex("{}");
  manifest.vocab_size = 257;
  manifest.seq_len = 4;
  manifest.dtype = "uint16";
  manifest.splits["validation"] = {2, 8, {{"s.npy", 2, hash_file(folder_ / "u/s.npy")}}};
  write("u/manifest.json", data_manifest_text(manifest));
  const auto dataset = Dataset::open(folder_ / "u", "validation");
  std::vector<int64_t> counts(257);
  count_targets(dataset, 0, 1, counts);
  count_targets(dataset, 1, 2, counts);  // in any parts
  EXPECT_NEAR(unigram_entropy(counts), std::log(2.0), 1e-15);
}

}  // namespace
}  // namespace athanor::dataset_test
