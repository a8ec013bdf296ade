#include "staging/manifest.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "staging/chunk_table.h"

namespace athanor::staging::manifest_test {

Entry file_of(const std::string& path, uint64_t size) {
  return {EntryKind::kFile, path, 0644, size, 1'700'000'000'123'456'789, false, ""};
}

Manifest some_manifest() {
  return {100,
          {{EntryKind::kFolder, "a", 0755},
           file_of("a/short", 30),
           file_of("a/empty", 0),
           file_of("a/long\n\xff", 250),
           file_of("a/x", 60),
           file_of("a/y", 50),
           {EntryKind::kLink, "a/link", 0777, 0, 0, false, "../a/x"}}};
}

TEST(Manifest, IsReadAsItWasWritten) {
  const Manifest manifest = some_manifest();
  EXPECT_EQ(decode_manifest(encode_manifest(manifest), "a test"), manifest);
}

TEST(Manifest, OneThatIsCutAnywhereIsRefused) {
  const std::string bytes = encode_manifest(some_manifest());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(decode_manifest(std::string_view(bytes).substr(0, size), "a test"), DataError) << size;
  EXPECT_THROW(decode_manifest(bytes + "x", "a test"), DataError);
}

TEST(Manifest, PathsThatLeaveTheTargetAreRefused) {
  for (const std::string path :
       {"", "/a", "..", "../a", "a/..", "a/../../b", "a//b", "./a", "a/", "a/.", ".athanor-yeet", ".athanor-yeet/x"})
    EXPECT_FALSE(find_path_fault(path).empty()) << path;
  EXPECT_FALSE(find_path_fault(std::string("a\0b", 3)).empty());
  for (const std::string path : {"a", "a/b", "...", "a/..b", ".hidden", "a/.athanor-yeet", "new\nline"})
    EXPECT_EQ(find_path_fault(path), "") << path;
}

TEST(Manifest, LinksMayPointAnywhereBelowTheTargetAndNowhereElse) {
  for (const auto& [path, target] :
       {std::pair{"a/l", "x"}, {"a/l", "../b"}, {"a/b/l", "../../c/d"}, {"l", "."}, {"a/l", ".."}})
    EXPECT_EQ(find_link_fault(path, target), "") << path << " to " << target;
  for (const auto& [path, target] : {std::pair{"a/l", "/etc"},
                                     {"a/l", "../.."},
                                     {"l", ".."},
                                     {"l", "a/../../b"},
                                     {"a/l", "../../target/x"},
                                     {"l", ""}})
    EXPECT_NE(find_link_fault(path, target), "") << path << " to " << target;
}

TEST(ChunkTable, CoversEachByteOnceAndPacksShortFiles) {
  const Manifest manifest = some_manifest();
  const ChunkTable table(manifest);
  std::vector<uint64_t> covered(manifest.entries.size());
  for (uint64_t chunk = 0; chunk < table.size(); ++chunk) {
    uint64_t bytes = 0;
    for (const Piece& piece : table.pieces(chunk)) {
      EXPECT_EQ(piece.at, bytes);
      EXPECT_EQ(piece.offset, covered[piece.entry]);
      const auto [begin, end] = table.chunks_of(piece.entry);
      EXPECT_TRUE(begin <= chunk && chunk < end);
      covered[piece.entry] += piece.bytes;
      bytes += piece.bytes;
    }
    EXPECT_EQ(bytes, table.bytes(chunk));
    EXPECT_LE(bytes, manifest.chunk_bytes);
  }
  for (size_t i = 0; i < covered.size(); ++i) EXPECT_EQ(covered[i], manifest.entries[i].size) << i;
  EXPECT_EQ(table.size(), 6u);  // short; three of the long one; x; y
}

TEST(ChunkTable, ChunksOfALongFileDoNotDependOnOtherFiles) {
  Manifest manifest = some_manifest();
  manifest.entries.insert(manifest.entries.begin() + 1, file_of("a/another", 77));
  const ChunkTable table(manifest);
  const auto [begin, end] = table.chunks_of(4);
  ASSERT_EQ(end - begin, 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(table.pieces(begin + i).size(), 1u);
    EXPECT_EQ(table.pieces(begin + i)[0].offset, i * 100);
  }
}

TEST(ChunkSet, ListsWhatWasAddedInOrder) {
  ChunkSet set(200), other(200);
  for (const uint64_t chunk : {199u, 0u, 63u, 64u}) set.add(chunk);
  other.add(100);
  other.add(0);
  set.unite(other);
  set.remove(63);
  EXPECT_EQ(set.list(), (std::vector<uint64_t>{0, 64, 100, 199}));
}

}  // namespace athanor::staging::manifest_test
