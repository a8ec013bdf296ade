#include <algorithm>

#include "dataset/block_checksums.h"

#include "base/error.h"
#include "dataset/npy.h"
#include "dataset/verify.h"
#include "prepare/testing/data_test.h"
#include "prepare/verify_folder.h"

namespace athanor::block_checksums_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSeqLen = int64_t{1} << 18;  // half a MiB: two rows are a block
constexpr int64_t kRowBytes = 2 * kSeqLen;

class Blocks : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    auto made = options({write("a.txt", std::string(size_t{9} * kSeqLen, 'a')).string()}, kSeqLen);
    made.shard_bytes = 128 + 5 * kRowBytes;
    made.validation_fraction = 0.1;
    prepare(made);
    out_ = made.out;
    more_ = made;
  }
  void change(const fs::path& file, int64_t offset) const {
    auto bytes = read_file(file);
    bytes.at(static_cast<size_t>(offset)) ^= 1;
    write_file_atomically(file, bytes);
  }
  std::string error_of_row(int64_t row) const {
    std::vector<int32_t> ids(kSeqLen);
    return refusal<DataError>([&] { Dataset::open(out_, "train").read(row, ids.data()); });
  }

  fs::path out_;
  PrepareOptions more_;
};

TEST_F(Blocks, ShardsHaveWholeBlocksAndAFileOfTheirChecksums) {
  const auto manifest = read_data_manifest(out_);
  const auto& files = manifest.splits.at("train").files;
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].instances, 4) << "five would fit, which are not whole blocks";
  const auto blocks = find_blocks(manifest, "m");
  const auto &train = blocks.shards.at("train"), &validation = blocks.shards.at("validation");
  EXPECT_EQ(train[0]->first_block, 0);
  EXPECT_EQ(train[1]->first_block, 2);
  EXPECT_EQ(validation[0]->first_block, 4);
  EXPECT_EQ(validation[0]->file_blocks, 5);
  const auto sums = open_checksums(out_ / "checksums-00000.npy", 5);
  const auto shard = read_file(out_ / files[1].file);
  HashWords words;
  sums.read_row(3, reinterpret_cast<std::byte*>(words.data()));
  EXPECT_EQ(hash_text(words), hash_hex(shard.substr(128 + 2 * kRowBytes, 2 * kRowBytes)));
}

TEST_F(Blocks, ADamagedBlockIsNamedByItsRowsAndOthersCanBeRead) {
  change(out_ / "train-00001.npy", 128 + kRowBytes + 77);
  std::vector<int32_t> ids(kSeqLen);
  const auto train = Dataset::open(out_, "train");
  for (const int64_t row : {0, 3, 6}) train.read(row, ids.data());
  EXPECT_SAYS(error_of_row(4), "train-00001.npy: rows 0 to 1 are damaged: their checksum is");
  EXPECT_SAYS(error_of_row(5), "checksums-00000.npy has");
}

TEST_F(Blocks, ABlockIsReadOnceForAllOfItsRows) {
  std::vector<int32_t> ids(kSeqLen);
  const auto train = Dataset::open(out_, "train");
  train.read(0, ids.data());
  fs::resize_file(out_ / "train-00000.npy", 200);
  train.read(1, ids.data());
  EXPECT_SAYS(refusal<IoError>([&] { train.read(2, ids.data()); }), "ends at byte 200 now");
}

TEST_F(Blocks, DamagedChecksumsAreFoundBeforeARunStarts) {
  change(out_ / "checksums-00000.npy", 130);
  const auto train = Dataset::open(out_, "train");
  EXPECT_SAYS(refusal<DataError>([&] {
                for (size_t i = 0; i < train.files().size(); ++i) train.check_file(i);
              }),
              "checksums-00000.npy: damaged");
  EXPECT_SAYS(refusal<DataError>([&] { train.verify(); }), "checksums-00000.npy: damaged");
}

TEST_F(Blocks, OtherNumbersOfBlocksAreFoundBeforeARunStarts) {
  auto manifest = read_data_manifest(out_);
  manifest.parts[0].checksums->block_rows = 4;
  write_file_atomically(out_ / kDataManifestName, data_manifest_text(manifest));
  const auto train = Dataset::open(out_, "train");
  EXPECT_SAYS(refusal<DataError>([&] { train.check_file(train.files().size() - 1); }),
              "checksums-00000.npy: shape [5, 4], the manifest has [3, 4]");
}

TEST_F(Blocks, ChecksumsOfOtherBlocksAreFoundByReadingTheFolder) {
  const auto file = out_ / "checksums-00000.npy";
  auto bytes = read_file(file);
  std::swap_ranges(bytes.end() - 32, bytes.end() - 16, bytes.end() - 16);  // the last two of five
  write_file_atomically(file, bytes);
  auto manifest = read_data_manifest(out_);
  manifest.parts[0].checksums->hash = hash_file(file);
  ProgressBar progress("verifying", 1, "B", 1000);
  const auto found = verify_folder(out_, manifest, progress).damage;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_SAYS(found[0], "train-00001.npy: rows 2 to 3 are damaged");
  EXPECT_SAYS(found[1], "validation-00000.npy: rows 0 to 0 are damaged");
}

TEST_F(Blocks, TwoPartsThatNameOneFileOfChecksumsAreRefused) {
  more_.inputs = {write("b.txt", std::string(size_t{4} * kSeqLen, 'b')).string()};
  more_.add = true;
  more_.validation_fraction = {};
  prepare(more_);
  auto manifest = read_data_manifest(out_);
  manifest.parts[1].checksums = manifest.parts[0].checksums;
  write_file_atomically(out_ / kDataManifestName, data_manifest_text(manifest));
  EXPECT_SAYS(refusal<DataError>([&] { Dataset::open(out_, "train"); }),
              "manifest.json: two parts have the checksums checksums-00000.npy; get it again");
}

TEST_F(Blocks, FilesThatAreAddedHaveChecksumsToo) {
  more_.inputs = {write("b.txt", std::string(size_t{4} * kSeqLen, 'b')).string()};
  more_.add = true;
  more_.validation_fraction = {};
  prepare(more_);
  const auto manifest = read_data_manifest(out_);
  const auto train = find_blocks(manifest, "m").shards.at("train");
  ASSERT_EQ(manifest.parts.size(), 2u);
  EXPECT_EQ(train.back()->file, "checksums-00001.npy");
  const auto data = Dataset::open(out_, "train");
  EXPECT_EQ(data.rows_of_parts().size(), 2u);
  std::vector<int32_t> ids(kSeqLen);
  for (int64_t row = 0; row < data.num_instances(); ++row) data.read(row, ids.data());
  data.verify();
}

TEST_F(Blocks, AFolderWithoutThemIsReadWithoutThem) {
  auto manifest = read_data_manifest(out_);
  manifest.parts[0].checksums.reset();
  write_file_atomically(out_ / kDataManifestName, data_manifest_text(manifest));
  fs::remove(out_ / "checksums-00000.npy");
  const auto train = Dataset::open(out_, "train");
  EXPECT_FALSE(train.files()[1].has_blocks);
  std::vector<int32_t> ids(kSeqLen);
  train.read(0, ids.data());
  train.verify();
}

TEST(BlockHashes, DoNotDependOnThePiecesThatAreGiven) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
  BlockHasher whole(300), pieces(300);
  whole.update(bytes.data(), bytes.size());
  for (size_t at = 0, step = 1; at < bytes.size(); at += step, step = step * 3 % 401 + 1) {
    step = std::min(step, bytes.size() - at);
    pieces.update(bytes.data() + at, step);
  }
  const auto blocks = whole.finish();
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(pieces.finish(), blocks);
  EXPECT_EQ(hash_text(blocks[1]), hash_hex(bytes.data() + 300, 300));
  EXPECT_EQ(hash_text(blocks[3]), hash_hex(bytes.data() + 900, 100));
}

TEST(BlockHashes, ABlockHasAMebibyteOrALittleMore) {
  EXPECT_EQ(rows_per_block(8192), 128);
  EXPECT_EQ(rows_per_block(1000000), 2);
  EXPECT_EQ(rows_per_block(int64_t{4} << 20), 1);
}

}  // namespace
}  // namespace athanor::block_checksums_test
