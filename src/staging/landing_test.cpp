#include "staging/landing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "base/fault.h"
#include "base/temporary_folder.h"
#include "staging/source.h"
#include "staging/testing/folder_content.h"
#include "staging/testing/tar_bytes.h"

namespace athanor::staging::landing_test {
namespace fs = std::filesystem;

constexpr uint64_t kChunk = 4096;

/// One node that gets chunks from a source without a network.
struct Node {
  Node(const std::vector<std::string>& sources, const fs::path& target)
      : listing(list_sources(sources, true, kChunk)), table(listing.manifest), reader(listing, table),
        target_path(target) {
    open();
  }
  void open() {
    landing.reset();
    landing = std::make_unique<Landing>(listing.manifest, table, target_path);
    lacking = landing->find_lacking(nullptr).list();
  }
  void write(uint64_t chunk) {
    ChunkBuffer buffer(kChunk);
    reader.read(chunk, buffer);
    landing->write(buffer);
  }
  void write_all() {
    landing->begin();
    for (const uint64_t chunk : lacking) write(chunk);
    landing->finish();
  }

  Listing listing;
  ChunkTable table;
  SourceReader reader;
  fs::path target_path;
  std::unique_ptr<Landing> landing;
  std::vector<uint64_t> lacking;
};

TEST(Landing, AfterACutOnlyTheChunksThatAreMissingAreLacking) {
  const TemporaryFolder here;
  write(here / "src/long", some_bytes(10 * kChunk + 5, 1));
  Node node({(here / "src").string()}, here / "dir");
  ASSERT_EQ(node.lacking.size(), 11u);
  node.landing->begin();
  for (const uint64_t chunk : {0, 3, 10}) node.write(chunk);
  node.open();
  EXPECT_EQ(node.lacking, (std::vector<uint64_t>{1, 2, 4, 5, 6, 7, 8, 9}));
  EXPECT_FALSE(fs::exists(here / "dir/src/long"));
  node.write_all();
  node.landing.reset();
  EXPECT_EQ(what_is_in(here / "dir/src"), what_is_in(here / "src"));
  EXPECT_FALSE(fs::exists(here / "dir/.athanor-yeet"));
}

TEST(Landing, AChunkOfAPartThatWasDamagedOnTheDiskIsLackingAgain) {
  const TemporaryFolder here;
  write(here / "src/long", some_bytes(8 * kChunk, 2));
  Node node({(here / "src").string()}, here / "dir");
  node.landing->begin();
  for (uint64_t chunk = 0; chunk < 6; ++chunk) node.write(chunk);
  node.landing.reset();
  for (const auto& one : fs::directory_iterator(here / "dir/.athanor-yeet")) {
    if (fs::file_size(one.path()) != 8 * kChunk) continue;
    std::fstream part(one.path(), std::ios::in | std::ios::out | std::ios::binary);
    part.seekp(4 * kChunk + 17);
    part.put('!');
  }
  node.open();
  EXPECT_EQ(node.lacking, (std::vector<uint64_t>{4, 6, 7}));
}

TEST(Landing, PartsOfASourceThatHasChangedSinceAreNotUsed) {
  const TemporaryFolder here;
  write(here / "src/long", some_bytes(4 * kChunk, 3));
  {
    Node node({(here / "src").string()}, here / "dir");
    node.landing->begin();
    node.write(0);
  }
  write(here / "src/long", some_bytes(4 * kChunk, 4));
  Node node({(here / "src").string()}, here / "dir");
  EXPECT_EQ(node.lacking.size(), 4u);
  node.write_all();
  node.landing.reset();
  EXPECT_EQ(read_file(here / "dir/src/long"), some_bytes(4 * kChunk, 4));
  EXPECT_FALSE(fs::exists(here / "dir/.athanor-yeet"));
}

TEST(Landing, NoPathFollowsALinkThatIsInTheTargetFolder) {
  const TemporaryFolder here;
  write(here / "src/folder/file", "content");
  fs::create_directories(here / "elsewhere/folder");
  fs::create_directories(here / "dir");
  fs::create_directory_symlink(here / "elsewhere", here / "dir/src");
  EXPECT_THROW(Node({(here / "src").string()}, here / "dir"), DataError);
  EXPECT_TRUE(what_is_in(here / "elsewhere/folder").empty());
}

TEST(Landing, ALinkInPlaceOfAFileIsReplacedAndWhatItPointsToIsNot) {
  const TemporaryFolder here;
  write(here / "src/file", "content");
  write(here / "elsewhere", "precious");
  fs::create_directories(here / "dir/src");
  fs::create_symlink(here / "elsewhere", here / "dir/src/file");
  Node node({(here / "src").string()}, here / "dir");
  node.write_all();
  EXPECT_EQ(read_file(here / "dir/src/file"), "content");
  EXPECT_FALSE(fs::is_symlink(here / "dir/src/file"));
  EXPECT_EQ(read_file(here / "elsewhere"), "precious");
}

TEST(Landing, HolesOfSparseFilesStayHoles) {
  const TemporaryFolder here;
  write(here / "src/sparse", "front");
  fs::resize_file(here / "src/sparse", 16 << 20);
  Node node({(here / "src").string()}, here / "dir");
  node.write_all();
  struct stat found {};
  ASSERT_EQ(::stat((here / "dir/src/sparse").c_str(), &found), 0);
  EXPECT_EQ(found.st_size, 16 << 20);
  EXPECT_LT(found.st_blocks * 512, 1 << 20);
  EXPECT_EQ(what_is_in(here / "dir/src"), what_is_in(here / "src"));
}

TEST(Landing, AFullDiskLeavesNothingHalfThereAndIsToldOnce) {
  const TemporaryFolder here;
  write(here / "src/a", some_bytes(4 * kChunk, 5));
  write(here / "src/b", some_bytes(4 * kChunk, 6));
  Node node({(here / "src").string()}, here / "dir");
  node.landing->begin();
  arm_fault("yeet.write:enospc@6");
  for (const uint64_t chunk : node.lacking) node.write(chunk);
  disarm_fault("yeet.write");
  try {
    node.landing->finish();
    FAIL();
  } catch (const IoError& error) {
    EXPECT_TRUE(error.disk_full());
    EXPECT_NE(std::string(error.what()).find("src/b"), std::string::npos);
  }
  EXPECT_EQ(what_is_in(here / "dir/src").size(), 1u);  // a
  node.open();
  EXPECT_EQ(node.lacking.size(), 3u);
  node.write_all();
  EXPECT_EQ(what_is_in(here / "dir/src"), what_is_in(here / "src"));
}

TEST(Landing, AnotherProcessMayNotFillTheSameFolder) {
  const TemporaryFolder here;
  write(here / "src/a", "x");
  Node node({(here / "src").string()}, here / "dir");
  EXPECT_THROW(Landing(node.listing.manifest, node.table, here / "dir"), ConfigError);
}

// ---- archives ------------------------------------------------------------------------------------------------------

std::vector<std::string> parts_of(const fs::path& target) {
  std::vector<std::string> names;
  for (const auto& one : fs::directory_iterator(target / kStateFolder)) names.push_back(one.path().filename().string());
  return names;
}

TEST(Unpacking, BeginsBeforeTheArchiveIsWholeAndNothingHasItsNameBefore) {
  const TemporaryFolder here;
  const std::string first = some_bytes(3 * kChunk, 7), second = some_bytes(5 * kChunk, 8);
  write(here / "pack.tar", tar_file("env/first", first) + tar_file("./env/second", second) + tar_end());
  Node node({(here / "pack.tar").string()}, here / "dir");
  node.landing->begin();
  for (uint64_t chunk = 0; chunk < 5; ++chunk) node.write(chunk);
  const auto has_part = [&] {  // whether all bytes of the first member are there
    for (const std::string& name : parts_of(here / "dir"))
      if (name.ends_with("-0") && fs::file_size(here / "dir" / kStateFolder / name) == first.size()) return true;
    return false;
  };
  while (!has_part() && !node.landing->failure()) ::usleep(1000);
  EXPECT_TRUE(what_is_in(here / "dir").empty());
  for (uint64_t chunk = 5; chunk < node.table.size(); ++chunk) node.write(chunk);
  node.landing->finish();
  EXPECT_EQ(read_file(here / "dir/env/first"), first);
  EXPECT_EQ(read_file(here / "dir/env/second"), second);
  node.open();
  EXPECT_TRUE(node.lacking.empty()) << "an archive that was unpacked is not sent again";
  fs::remove(here / "dir/env/first");
  node.open();
  EXPECT_FALSE(node.lacking.empty()) << "unless something of it is missing";
}

TEST(Unpacking, AfterACutTheArchivesChunksAreNotSentAgain) {
  const TemporaryFolder here;
  const std::string content = some_bytes(9 * kChunk, 9);
  write(here / "pack.tar", tar_file("big", content) + tar_end());
  Node node({(here / "pack.tar").string()}, here / "dir");
  node.landing->begin();
  for (uint64_t chunk = 0; chunk < 6; ++chunk) node.write(chunk);
  node.open();
  EXPECT_EQ(node.lacking.size(), node.table.size() - 6);
  node.write_all();
  EXPECT_EQ(read_file(here / "dir/big"), content);
}

std::string refusal_of(const std::string& tar) {
  const TemporaryFolder here;
  write(here / "pack.tar", tar);
  write(here / "outside", "precious");
  Node node({(here / "pack.tar").string()}, here / "dir");
  try {
    node.write_all();
  } catch (const DataError& error) {
    EXPECT_TRUE(what_is_in(here / "dir").empty());
    EXPECT_EQ(read_file(here / "outside"), "precious");
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(Unpacking, WhatLeavesTheTargetFolderIsRefusedAndNothingIsUnpacked) {
  const std::string good = tar_file("good", "x");
  EXPECT_NE(refusal_of(good + tar_file("../outside", "x") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_file("/tmp/outside", "x") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_file("a/../../outside", "x") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_member('2', "link", "", "/etc") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_member('2', "a/link", "", "../../outside") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_member('1', "hard", "", "../outside") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_member('3', "device") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_member('6', "pipe") + tar_end()), "");
  EXPECT_NE(refusal_of(good + tar_file(".athanor-yeet/lock", "x") + tar_end()), "");
}

TEST(Unpacking, WhatIsNoArchiveOrIsCutIsRefused) {
  EXPECT_NE(refusal_of(some_bytes(5000, 10)), "");
  EXPECT_NE(refusal_of(tar_file("file", some_bytes(9000, 11)).substr(0, 4000)), "");
}

TEST(Unpacking, LinksWithinTheTargetFoldersModesAndRepeatedFilesAreKept) {
  const TemporaryFolder here;
  write(here / "pack.tar", tar_member('5', "a/", "", "", 0750) + tar_member('0', "a/run", "#!", "", 0755) +
                               tar_file("a/x", "old") + tar_file("a/x", "new") + tar_member('2', "a/link", "", "run") +
                               tar_member('1', "a/same", "", "a/run") + tar_file("a/empty", "") +
                               tar_file("b/c/without-folder", "y") + tar_end());
  Node node({(here / "pack.tar").string()}, here / "dir");
  node.write_all();
  const auto found = what_is_in(here / "dir");
  EXPECT_EQ(found.at("a"), std::to_string(0750) + " folder");
  EXPECT_EQ(found.at("a/run"), std::to_string(0755) + " file 1700000000.0 #!");
  EXPECT_EQ(found.at("a/same"), found.at("a/run"));
  EXPECT_EQ(found.at("a/link"), "link to run");
  EXPECT_EQ(read_file(here / "dir/a/x"), "new");
  EXPECT_EQ(read_file(here / "dir/b/c/without-folder"), "y");
  EXPECT_EQ(read_file(here / "dir/a/empty"), "");
}

}  // namespace athanor::staging::landing_test
