// Tests what `athanor checkpoint ls` shows: which folders it finds, and what it reads of each.

#include "checkpoint/listing.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rotation.h"
#include "checkpoint/step_words.h"
#include "checkpoint/testing/large_manifest.h"
#include "checkpoint/writer.h"

namespace athanor::listing_test {
namespace {

namespace fs = std::filesystem;

class Listing : public FolderTest {
 protected:
  fs::path write_step(int64_t step, const std::string& in = "checkpoints") {
    const auto path = folder_ / in / step_folder_name(step);
    fs::create_directories(path.parent_path());
    const std::vector<float> values{1, 2, 3};
    write_checkpoint(path, {{"master/a", whole_slice({3}), values.data()}}, {{"hidden_size", 3}},
                     {{"step", step}, {"tokens_seen", 100 * step}});
    return path;
  }
  std::vector<std::string> shown(const fs::path& path) {
    std::vector<std::string> lines;
    for (const auto& found : find_checkpoints(path)) {
      lines.push_back(fmt::format("{} {} {}", found.step, name_of(found.kind), name_of(found.state)));
    }
    return lines;
  }
};

using Lines = std::vector<std::string>;

TEST_F(Listing, FoldersAreNamedByWhatTheirNamesMean) {
  write_step(4);
  write_step(12);
  write("models/step-00000012/athanor.json", R"({"step": 12, "tokens_seen": 7})");
  for (const char* name : {".step-00000016.tmp", ".step-00000008.replaced", "not-finite-step-00000010",
                           "abandoned-002/step-00000020", "step-00000005.bak", "step-5", ".trash"})
    fs::create_directories(folder_ / "checkpoints" / name);
  fs::create_directories(folder_ / "models/.step-00000014.parts.tmp");
  EXPECT_EQ(shown(folder_), (Lines{"20 full abandoned", "16 full unfinished", "14 model unfinished", "12 full there",
                                   "12 model there", "10 full put aside", "8 full replaced", "4 full there"}));
  EXPECT_EQ(shown(folder_ / "models"), (Lines{"14 model unfinished", "12 model there"}));
  EXPECT_EQ(shown(folder_ / "checkpoints/step-00000004"), Lines{"4 full there"});
  EXPECT_EQ(shown(folder_ / "checkpoints/step-00000004/"), Lines{"4 full there"});
}

TEST_F(Listing, ARunWithoutCheckpointsHasNoneAndAnotherFolderIsRefused) {
  write("run/config.toml", "");
  EXPECT_TRUE(find_checkpoints(folder_ / "run").empty());
  EXPECT_SAYS(refusal<CheckpointError>([&] { find_checkpoints(folder_); }), "is not a run folder");
  EXPECT_SAYS(refusal<CheckpointError>([&] { find_checkpoints(folder_ / "nowhere"); }), "no such folder");
}

TEST_F(Listing, PreparedDataAndOtherFoldersWithAManifestAreNoDamagedCheckpoints) {
  write("data/manifest.json", "{\n  \"format\": \"athanor-data\",\n  \"version\": 1\n}\n");
  write("other/manifest.json", R"({"name": "a web page"})");
  write("copy-of-step-00000004/manifest.json", "{");
  EXPECT_SAYS(
      refusal<CheckpointError>([&] { find_checkpoints(folder_ / "data"); }),
      "data is no checkpoint: its manifest.json is that of prepared data; verify prepared data with athanor data");
  EXPECT_SAYS(refusal<CheckpointError>([&] { find_checkpoints(folder_ / "other"); }), "is that of something else");
  EXPECT_EQ(find_checkpoints(folder_ / "copy-of-step-00000004").size(), 1u) << "it may be a damaged one";
}

TEST_F(Listing, AStepIsFoundWithAndWithoutZerosAndInItsRun) {
  const fs::path four = write_step(4);
  for (const char* named : {"checkpoints/step-00000004", "checkpoints/step-4", "step-4", "step-00000004/"})
    EXPECT_EQ(find_step_folder(folder_ / named), fs::exists(folder_ / named) ? folder_ / named : four) << named;
  EXPECT_EQ(find_step_folder(folder_ / "step-5"), folder_ / "step-5");
  EXPECT_EQ(shown(folder_ / "step-4"), Lines{"4 full there"});
}

TEST_F(Listing, ACheckpointIsDescribedByItsFilesAndTheBeginningOfItsManifest) {
  const auto path = write_step(4);
  write("checkpoints/step-00000004/ranks-000/pieces-00001-00000.safetensors", "12345");
  write("checkpoints/step-00000004/ranks-000/pieces-00001-00001.safetensors", "6789");
  const auto described = describe_checkpoint(find_checkpoints(path).at(0)).value();
  EXPECT_EQ(described.problem, "");
  EXPECT_EQ(described.tokens_seen, 400);
  EXPECT_EQ(described.num_files, 4);
  EXPECT_EQ(described.num_ranks, 2);
  EXPECT_EQ(described.num_bytes,
            fs::file_size(path / kManifestName) + fs::file_size(path / "pieces-00000.safetensors") + 9);
  EXPECT_FALSE(described.version.empty());
  EXPECT_GT(described.written_s, 1'700'000'000);
}

TEST_F(Listing, WhatCannotBeReadIsAProblemOfItsLineAlone) {
  const auto path = write_step(4);
  const auto problem = [&] { return describe_checkpoint(find_checkpoints(path).at(0)).value().problem; };
  const std::string whole = read_file(path / kManifestName);
  write_raw(path / kManifestName, whole.substr(0, 150));
  EXPECT_SAYS(problem(), "its tables do not begin in the first 150 bytes");
  write_raw(path / kManifestName, "");
  EXPECT_SAYS(problem(), "not a manifest");
  auto edited = whole;
  write_raw(path / kManifestName, edited.replace(edited.find("\"version\": 1"), 12, "\"version\": 2"));
  EXPECT_SAYS(problem(), "version 2 was written by another athanor");
  edited = whole;
  write_raw(path / kManifestName, edited.replace(edited.find("\"step\":4"), 8, "\"step\":5"));
  EXPECT_SAYS(problem(), "its name is of step 4, its state of step 5");
  fs::remove(path / kManifestName);
  EXPECT_SAYS(problem(), "it has no manifest.json");
}

TEST_F(Listing, AFolderThatDisappearsIsLeftOut) {
  write_step(4);
  const auto found = find_checkpoints(folder_);
  fs::remove_all(found.at(0).path);
  EXPECT_FALSE(describe_checkpoint(found.at(0)).has_value());
}

// Bytes that this process has asked the kernel to read.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  for (std::string key; io >> key;) {
    int64_t value = 0;
    io >> value;
    if (key == "rchar:") return value;
  }
  return -1;
}

TEST_F(Listing, OfALargeManifestOnlyTheBeginningIsRead) {
  Manifest manifest = large_manifest(20'000);
  manifest.state = {{"step", 4}, {"config", std::string(200'000, 'x') + "\n\"tensors\": {"}};
  const auto path = folder_ / kManifestName;
  write_raw(path, manifest_text(manifest));
  ASSERT_GT(fs::file_size(path), 4'000'000u);
  const int64_t before = bytes_read();
  if (before < 0) GTEST_SKIP() << "this kernel does not count reads";
  const auto summary = read_manifest_summary(path);
  // Its head has 200 kB, and blocks double from 64 KiB: at most 256 KiB are read, and a few lines of /proc.
  EXPECT_LT(bytes_read() - before, (256 << 10) + 4096);
  EXPECT_EQ(summary.state, manifest.state);
}

}  // namespace
}  // namespace athanor::listing_test
