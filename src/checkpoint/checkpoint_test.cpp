// Tests writer, manifest and reader together: what is saved under any slicing can be read under any other, or is
// refused.

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/testing/random_slices.h"
#include "checkpoint/writer.h"

namespace athanor::checkpoint_test {
namespace {

using Json = nlohmann::json;

/// A tensor in memory, from which slices are cut; element i of tensor number k differs from all others.
struct Whole {
  std::string name;
  Shape shape;
  std::vector<float> values;

  Whole(std::string tensor, Shape of, int number) : name(std::move(tensor)), shape(std::move(of)) {
    values.resize(static_cast<size_t>(*num_elements(shape)));
    std::iota(values.begin(), values.end(), static_cast<float>(number * 10000) + 0.5F);
  }
  std::vector<float> cut(const Slice& slice) const {
    std::vector<float> out;
    for (int64_t i = 0; i < slice.num_elements(); ++i) {
      const auto index = global_index(slice, i);
      int64_t flat = 0;
      for (size_t d = 0; d < index.size(); ++d) flat = flat * shape[d] + index[d];
      out.push_back(values[static_cast<size_t>(flat)]);
    }
    return out;
  }
};

class Checkpoint : public FolderTest {
 protected:
  std::filesystem::path path_ = "unset";
  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "step-00000010";
  }

  /// Writes two tensors, the first in two pieces.
  void write_small(float first = 1) {
    std::vector<float> a(24, first), b{7, 8, 9};
    const Shape shape{4, 6};
    write_checkpoint(path_,
                     {{"master/a", box_slice(shape, {0, 0}, {4, 2}), a.data()},
                      {"master/a", box_slice(shape, {0, 2}, {4, 4}), a.data() + 8},
                      {"exp_avg/b", whole_slice({3}), b.data()}},
                     {{"hidden_size", 6}}, {{"step", 10}});
  }

  std::string load_refusal(const std::vector<TargetView>& targets) {
    return message_of<CheckpointError>([&] { CheckpointReader::open(path_).load(targets); });
  }

  /// Changes the manifest's text and corrects its hash, as a faulty program could write it.
  void edit_manifest(const std::string& from, const std::string& to) {
    auto text = read_file(path_ / kManifestName);
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " is not in " << text;
    text.replace(at, from.size(), to);
    const auto body = text.substr(text.find('\n') + 1);
    write_raw(path_ / kManifestName, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
  }
  std::string open_refusal() {
    return message_of<CheckpointError>([&] { CheckpointReader::open(path_); });
  }
};

TEST_F(Checkpoint, WhatIsReadBlockByBlockHasTheBytesOfWhatIsInMemory) {
  const Shape shape{3, 1'000'003};  // several blocks, the last of another length, and files cut inside the slice
  std::vector<float> values(3'000'009);
  std::iota(values.begin(), values.end(), 0.5F);
  Slice slice = whole_slice(shape);
  slice.flat_begin = 5;
  slice.flat_end = slice.flat_end - 7;
  const auto read = [&](int64_t first, std::span<float> out) {
    std::copy_n(values.begin() + 5 + first, out.size(), out.begin());
  };
  const WriteOptions options{.max_file_bytes = 5'000'000, .num_threads = 2};
  Manifest in_memory, block_by_block;
  for (const char* name : {"a", "b"}) std::filesystem::create_directories(folder_ / name);
  write_pieces(folder_ / "a", "p", {{"master/a", slice, values.data() + 5}}, in_memory, options);
  write_pieces(folder_ / "b", "p", {{"master/a", slice, nullptr, read}}, block_by_block, options);
  ASSERT_EQ(in_memory.pieces.size(), 3u);
  ASSERT_EQ(in_memory.files, block_by_block.files);
  for (size_t i = 0; i < in_memory.pieces.size(); ++i) {
    EXPECT_EQ(in_memory.pieces[i].hash.text(), block_by_block.pieces[i].hash.text()) << i;
    EXPECT_EQ(in_memory.pieces[i].slice(), block_by_block.pieces[i].slice()) << i;
  }
  for (const auto& [name, size] : in_memory.files) {
    EXPECT_EQ(read_file(folder_ / "a" / name), read_file(folder_ / "b" / name)) << name;
  }
}

TEST_F(Checkpoint, AnElementThatIsNotFiniteIsRefusedByNameIfThatIsAskedForAndNothingIsLeft) {
  std::vector<float> values(2'000'000, 1);  // two blocks
  values[1'500'001] = std::numeric_limits<float>::infinity();
  Slice slice = whole_slice({1000, 2001});
  slice.flat_begin = 1000;
  slice.flat_end = 2'001'000;
  const auto write = [&](bool must_be_finite) {
    write_checkpoint(path_, {{"exp_avg/a", slice, values.data()}}, {}, {}, {.must_be_finite = must_be_finite});
  };
  // 1,501,001 = 750 · 2001 + 251
  EXPECT_EQ(message_of<NumbersError>([&] { write(true); }), "element [750, 251] of exp_avg/a is inf");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  Manifest manifest;
  write_pieces(folder_, "p", {{"exp_avg/a", slice, values.data()}}, manifest);
}

TEST_F(Checkpoint, WhatIsNotKeptAsFp32IsReadBlockByBlock) {
  std::vector<float> values(10'007), loaded(5'001, -1.0F);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  write_checkpoint(path_, {{"master/a", whole_slice({10'007}), values.data()}}, {}, {}, {.max_file_bytes = 20'000});
  Slice middle = whole_slice({10'007});
  middle.flat_begin = 2'500;
  middle.flat_end = 7'501;
  const auto write = [&](int64_t first, std::span<const float> run) {
    std::copy(run.begin(), run.end(), loaded.begin() + first);
  };
  CheckpointReader::open(path_).load({{"master/a", middle, nullptr, write}});
  for (size_t i = 0; i < loaded.size(); ++i) ASSERT_EQ(loaded[i], values[2'500 + i]) << i;
}

TEST_F(Checkpoint, AnySlicingReadsWhatAnyOtherWrote) {
  RandomSlices random(5);
  for (int round = 0; round < 25; ++round) {
    std::vector<Whole> wholes;
    std::vector<std::vector<float>> kept;
    std::vector<std::pair<const Whole*, Slice>> slices;
    for (int k = 0; k < 4; ++k) wholes.emplace_back("master/t" + std::to_string(k), random.shape(), k);
    std::vector<PieceView> pieces;
    for (const auto& whole : wholes) {
      for (const auto& slice : random.tiling(whole.shape)) {
        kept.push_back(whole.cut(slice));
        pieces.push_back({whole.name, slice, kept.back().data()});
      }
    }
    const auto path = folder_ / ("round" + std::to_string(round));
    write_checkpoint(path, pieces, {}, {{"round", round}},
                     {.max_file_bytes = static_cast<uint64_t>(200 + random.below(4000)), .num_threads = 2});

    const auto reader = CheckpointReader::open(path);
    reader.verify();
    EXPECT_EQ(reader.state()["round"], round);
    std::vector<TargetView> targets;
    std::vector<std::vector<float>> wanted, loaded;
    for (const auto& whole : wholes) {
      auto asked = random.tiling(whole.shape);
      asked.push_back(random.slice(whole.shape));  // targets may also overlap
      for (const auto& slice : asked) {
        wanted.push_back(whole.cut(slice));
        loaded.emplace_back(wanted.back().size(), -1.0F);
        targets.push_back({whole.name, slice, loaded.back().data()});
      }
    }
    reader.load(targets);
    ASSERT_EQ(loaded, wanted) << "round " << round;
  }
}

TEST_F(Checkpoint, BitsOfNotANumberSurvive) {
  const uint32_t bits[2] = {0x7FA00001, 0x80000000};
  float values[2], loaded[2];
  std::memcpy(values, bits, sizeof(bits));
  write_checkpoint(path_, {{"master/x", whole_slice({2}), values}}, {}, {});
  CheckpointReader::open(path_).load({{"master/x", whole_slice({2}), loaded}});
  EXPECT_EQ(std::memcmp(loaded, bits, sizeof(bits)), 0);
}

TEST_F(Checkpoint, FilesKeepTheirBoundAndAreSafetensors) {
  std::vector<float> values(1000, 2);
  write_checkpoint(path_, {{"master/x", whole_slice({10, 100}), values.data()}}, {}, {}, {.max_file_bytes = 1024});
  const auto reader = CheckpointReader::open(path_);
  EXPECT_EQ(reader.manifest().files.size(), 4u);
  for (const auto& piece : reader.manifest().pieces) {
    EXPECT_LE(piece.num_bytes(), 1024u);
    const auto file = SafetensorsFile::open(path_ / piece.file_name());
    ASSERT_EQ(file.tensors().size(), 1u);
    EXPECT_EQ(file.tensors().begin()->first, "master/x#0");
    EXPECT_EQ(file.tensors().begin()->second.begin, piece.byte_offset);
  }
}

TEST_F(Checkpoint, ACheckpointIsAbsentUntilItIsWhole) {
  ::setenv("ATHANOR_FAULT", "checkpoint.before_commit:kill", 1);
  EXPECT_EXIT(write_small(), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("ATHANOR_FAULT");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(folder_ / ".step-00000010.tmp"));
  write_small();  // the leftover does no harm
  CheckpointReader::open(path_).verify();
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".step-00000010.tmp"));
}

TEST_F(Checkpoint, AFullDiskIsToldAndLeavesNothing) {
  ::setenv("ATHANOR_FAULT", "checkpoint.piece:enospc@2", 1);
  const auto write = [&] {
    try {
      write_small();
    } catch (const IoError& error) {
      std::_Exit(error.disk_full() && std::filesystem::is_empty(folder_) ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(write(), testing::ExitedWithCode(0), "");
}

TEST_F(Checkpoint, ADamagedPieceIsNamedWithTensorAndFile) {
  write_small();
  const auto reader = CheckpointReader::open(path_);
  const auto& piece = reader.manifest().pieces.at(1);
  damage_byte(path_ / piece.file_name(), piece.byte_offset + 5);
  const auto message = message_of<CheckpointError>([&] { CheckpointReader::open(path_).verify(); });
  EXPECT_SAYS(message, "tensor master/a (offset [0, 2], extent [4, 4]");
  EXPECT_SAYS(message, piece.file_name());
}

TEST_F(Checkpoint, EveryDamagedByteOfTheManifestIsNoticed) {
  write_small();
  const auto text = read_file(path_ / kManifestName);
  for (size_t i = 0; i < text.size(); ++i) {
    auto damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(parse_manifest(damaged, "m"), CheckpointError) << i;
    EXPECT_THROW(parse_manifest(std::string_view(text).substr(0, i), "m"), CheckpointError) << i;
  }
  damage_byte(path_ / kManifestName, 200);
  EXPECT_SAYS(open_refusal(), "manifest.json: damaged: its hash should be");
}

TEST_F(Checkpoint, MissingAndTruncatedFilesAreNamed) {
  write_small();
  const auto file = path_ / "pieces-00000.safetensors";
  const auto bytes = read_file(file);
  std::vector<float> out(24);
  const auto expect_both_say = [&](const std::string& what) {  // both reading and verifying
    EXPECT_SAYS(message_of<CheckpointError>([&] { CheckpointReader::open(path_).verify(); }), what);
    EXPECT_SAYS(load_refusal({{"master/a", whole_slice({4, 6}), out.data()}}), what);
  };
  write_raw(file, bytes.substr(0, bytes.size() - 1));
  expect_both_say(fmt::format("{} bytes expected, {} found", bytes.size(), bytes.size() - 1));
  std::filesystem::remove(file);
  expect_both_say("the file pieces-00000.safetensors is missing");
  std::filesystem::remove(path_ / kManifestName);
  EXPECT_SAYS(open_refusal(), "has no manifest.json");
  std::filesystem::remove_all(path_);
  EXPECT_SAYS(open_refusal(), "no such checkpoint folder");
}

TEST_F(Checkpoint, AManifestThatContradictsItselfIsRefused) {
  struct Case {
    std::string from, to, says;
  };
  const std::vector<Case> cases{
      {"\"extent\":[4,2]", "\"extent\":[4,7]", "dim 1 holds elements 0 to 0+7"},
      {"\"flat_end\":8", "\"flat_end\":9", "not a range"},
      {"\"flat_end\":8", "\"flat_end\":7", "hold 23 of its 24 elements"},
      {"\"flat_end\":8", "\"flat_end\":-8", "whole number"},
      {"\"tensor\":\"exp_avg/b\"", "\"tensor\":\"exp_avg/c\"", "no such tensor"},
      {"\"master/a\": [4,6]", "\"master/a\": [4,4611686018427387904]", "impossible"},
      {"\"version\": 1", "\"version\": 2", "version 2"},
      {"athanor-checkpoint", "other-checkpoint", "format is"},
      {"\"hash\":\"", "\"hash\":\"0", "not a hash of 32 digits"},
      {"\"file\":", "\"tensor\":\"a\",\"file\":", "the key \"tensor\" occurs twice"},
      {"\"files\": {", "\"filed\": {", "\"files\" is missing"},
      {"\"model\": {", "\"models\": {", "\"model\" is missing"},
      {"[\n{\"byte_offset\"", "[7,\n{\"byte_offset\"", "must be a list of objects, found number"},
      {"\"file\":\"pieces-00000.safetensors\"", "\"file\":\"x.safetensors\"", "no file x.safetensors"},
      {"\"pieces-00000.safetensors\": ", "\"../00000.safetensors\": ", "not the name of a safetensors file"},
      {"\"pieces-00000.safetensors\": ", "\"a/../0.safetensors\": ", "not the name of a safetensors file"},
      {"\"pieces-00000.safetensors\": ", "\"/0.safetensors\": ", "not the name of a safetensors file"},
      {"\"byte_offset\":", "\"byte_offset\":9", "do not fit into"},
  };
  for (const auto& c : cases) {
    std::filesystem::remove_all(path_);
    write_small();
    edit_manifest(c.from, c.to);
    EXPECT_SAYS(open_refusal(), c.says);
  }
}

TEST_F(Checkpoint, TwoPiecesWithTheSameElementsAreRefused) {
  write_small();
  // The second piece claims columns 1 to 4 of 6: one column twice, the last one never. The counts still agree.
  edit_manifest("\"offset\":[0,2]", "\"offset\":[0,1]");
  std::vector<float> out(24);
  EXPECT_SAYS(load_refusal({{"master/a", whole_slice({4, 6}), out.data()}}),
              "tensor master/a: two pieces hold the same elements: offset [0, 0], extent [4, 2], elements 0 to 8 and "
              "offset [0, 1], extent [4, 4]");
  EXPECT_SAYS(
      load_refusal({{"master/a", box_slice({4, 6}, {1, 5}, {2, 1}), out.data()}}),
      "2 of the 2 elements wanted (offset [1, 5], extent [2, 1], elements 0 to 2) are in no piece, the first at "
      "[1, 5]");
}

TEST_F(Checkpoint, AnotherModelsTensorsAreNamedWithBothShapes) {
  write_small();
  std::vector<float> out(48);
  const auto message = load_refusal({{"master/a", whole_slice({4, 12}), out.data()},
                                     {"master/z", whole_slice({2}), out.data()},
                                     {"exp_avg/b", whole_slice({3}), out.data()}});
  EXPECT_SAYS(message, "tensor master/a has shape [4, 6] there, [4, 12] here; tensor master/z is missing");
  EXPECT_EQ(message.find("exp_avg/b"), std::string::npos);
}

TEST_F(Checkpoint, WhatNobodyCouldReadIsNotWritten) {
  const float values[4] = {};
  const auto refusal = [&](const std::vector<PieceView>& pieces, const Json& state = {}) {
    auto message = message_of<CheckpointError>([&] { write_checkpoint(path_, pieces, Json::object(), state); });
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    return message;
  };
  EXPECT_SAYS(refusal({{"master/a", box_slice({4}, {0}, {3}), values}}), "hold 3 of its 4 elements");
  EXPECT_SAYS(refusal({{"master/a", whole_slice({4}), values}, {"master/a", whole_slice({4}), values}}), "more than");
  EXPECT_SAYS(refusal({{"master/a", whole_slice({4}), values}, {"master/a", whole_slice({2, 2}), values}}),
              "shape [4] and again with shape [2, 2]");
  EXPECT_SAYS(refusal({}, {{"loss", std::nan("")}}), "state.loss is not finite");
}

}  // namespace
}  // namespace athanor::checkpoint_test
