// Tests the verification of one checkpoint: what it finds in addition to hashes.

#include "checkpoint/verification.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/writer.h"

namespace athanor::verification_test {
namespace {

namespace fs = std::filesystem;

class Verification : public FolderTest {
 protected:
  fs::path path_ = "unset";

  /// Writes a of [4, 6] as two boxes and b of [3], one piece in each file.
  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "step-00000010";
    const std::vector<float> a(24, 1.5F), b{7, 8, 9};
    const Shape shape{4, 6};
    write_checkpoint(path_,
                     {{"master/a", box_slice(shape, {0, 0}, {4, 2}), a.data()},
                      {"master/a", box_slice(shape, {0, 2}, {4, 4}), a.data() + 8},
                      {"master/b", whole_slice({3}), b.data()}},
                     {{"hidden_size", 6}}, {{"step", 10}}, {.max_file_bytes = 64});
  }

  /// Changes every occurrence in the manifest's text and corrects its hash, as a faulty program could write it.
  void edit_manifest(const std::string& from, const std::string& to) {
    auto text = read_file(path_ / kManifestName);
    ASSERT_NE(text.find(from), std::string::npos) << from << " is not in " << text;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    const auto body = text.substr(text.find('\n') + 1);
    write_raw(path_ / kManifestName, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
  }
  std::string refused(int threads = 1) {
    return refusal<CheckpointError>([&] { verify_checkpoint(path_, threads); });
  }
};

TEST_F(Verification, AWholeCheckpointIsCounted) {
  for (const int threads : {1, 2, 5}) {
    const auto verified = verify_checkpoint(path_, threads);
    EXPECT_EQ(verified.num_bytes, 27 * sizeof(float));
    EXPECT_EQ(verified.num_tensors, 2);
    EXPECT_EQ(verified.num_files, 3);
  }
}

TEST_F(Verification, AFlippedBitNamesTensorFileAndBytesForAnyNumberOfThreads) {
  const auto file = path_ / "pieces-00001.safetensors";
  damage_byte(file, fs::file_size(file) - 1);
  for (const int threads : {1, 2, 5}) {
    EXPECT_SAYS(refused(threads), "pieces-00001.safetensors: damaged: tensor master/a");
    EXPECT_SAYS(refused(threads), "bytes ");
  }
}

TEST_F(Verification, AShortOrMissingFileIsNamed) {
  const auto file = path_ / "pieces-00001.safetensors";
  fs::resize_file(file, fs::file_size(file) - 4);
  EXPECT_SAYS(refused(), "pieces-00001.safetensors: truncated or changed");
  fs::remove(file);
  EXPECT_SAYS(refused(2), "pieces-00001.safetensors is missing");
}

// Hashes and counts are right here: only a look at where the pieces lie shows it.
TEST_F(Verification, PiecesThatHoldAnElementTwiceAndLeaveOneOutAreNamed) {
  edit_manifest(R"("offset":[0,2])", R"("offset":[0,1])");
  EXPECT_SAYS(refused(),
              "tensor master/a: two pieces hold the same elements: offset [0, 0], extent [4, 2], elements 0 to 8 and "
              "offset [0, 1], extent [4, 4]");
}

TEST_F(Verification, AnElementInNoPieceIsNamedByItsIndex) {
  Manifest manifest;
  const auto* tensor = manifest.add_tensor("master/a", {3, 4});
  const auto* file = &*manifest.files.emplace("x.safetensors", 1000).first;
  Slice slice = whole_slice({3, 4});
  slice.flat_end = 6;
  manifest.add_piece(tensor, file, slice, 100, {});
  EXPECT_SAYS(refusal<CheckpointError>([&] { check_pieces(manifest, "c", 1); }),
              "tensor master/a: the element at [1, 2] is in no piece");
}

}  // namespace
}  // namespace athanor::verification_test
