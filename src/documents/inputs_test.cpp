#include "documents/inputs.h"

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::inputs_test {
namespace {

class Inputs : public FolderTest {
 protected:
  // Returns the paths to which `inputs` expand, relative to the test's folder, as are the inputs.
  std::vector<std::string> expand(std::vector<std::string> inputs) const {
    for (auto& input : inputs) input = (folder_ / input).string();
    std::vector<std::string> found;
    for (const auto& path : expand_inputs(inputs)) found.push_back(path.lexically_relative(folder_).string());
    return found;
  }
  std::string refused(const std::string& input) const {
    return refusal<DataError>([&] { expand({input}); });
  }
};

using Names = std::vector<std::string>;

TEST_F(Inputs, FoldersAreSearchedSortedAndWithoutHiddenFiles) {
  for (const char* name : {"d/b.txt", "d/a/z.jsonl.gz", "d/a/.hidden.txt", "d/.git/c.txt", "d/c.json.zst", "d/x.npy"}) {
    write(name, "x");
  }
  EXPECT_EQ(expand({"d"}), (Names{"d/a/z.jsonl.gz", "d/b.txt", "d/c.json.zst"}));
}

TEST_F(Inputs, AFileNamedTwiceIsTakenOnceAndTheOrderDoesNotMatter) {
  write("d/b.txt", "x");
  write("a.md", "x");
  EXPECT_EQ(expand({"d", "a.md", "d/b.txt", "d/../a.md"}), (Names{"a.md", "d/b.txt"}));
}

TEST_F(Inputs, PatternsMatchWithinNamesAndOverFolders) {
  for (const char* name : {"a1.txt", "a2.txt", "b1.txt", ".a3.txt", "d/a4.txt", "d/e/a5.txt"}) write(name, "x");
  EXPECT_EQ(expand({"a?.txt"}), (Names{"a1.txt", "a2.txt"}));
  EXPECT_EQ(expand({"[!a]*.txt"}), (Names{"b1.txt"}));
  EXPECT_EQ(expand({"[ab]1.*"}), (Names{"a1.txt", "b1.txt"}));
  EXPECT_EQ(expand({"**/a*.txt"}), (Names{"a1.txt", "a2.txt", "d/a4.txt", "d/e/a5.txt"}));
  EXPECT_EQ(expand({"d/**"}), (Names{"d/a4.txt", "d/e/a5.txt"}));
  EXPECT_EQ(expand({"*/e"}), (Names{"d/e/a5.txt"}));
}

TEST_F(Inputs, AFileWithAWildcardInItsNameIsThatFile) {
  write("a[1].txt", "x");
  EXPECT_EQ(expand({"a[1].txt"}), (Names{"a[1].txt"}));
}

TEST_F(Inputs, ALinkUpwardsEnds) {
  write("d/a.txt", "x");
  std::filesystem::create_directory_symlink("..", folder_ / "d/up");
  EXPECT_EQ(expand({"d"}), (Names{"d/a.txt"}));
  EXPECT_EQ(expand({"d/**/*.txt"}), (Names{"d/a.txt"}));
}

TEST_F(Inputs, WhatCannotBeReadIsNamed) {
  write("d/a.warc.gz", "x");
  write("a.docx", "x");
  EXPECT_SAYS(refused("none.txt"), "none.txt does not exist");
  EXPECT_SAYS(refused("*.txt"), "no file matches");
  EXPECT_SAYS(refused("a.docx"), "unknown kind of file (.docx)");
  EXPECT_SAYS(refused("a.*"), "unknown kind of file (.docx)");
  EXPECT_SAYS(refused("d"), "no documents in this folder, only .warc.gz (1)");
}

TEST_F(Inputs, EndingsAreReadWithoutCase) {
  EXPECT_EQ(input_format("A.JSONL.GZ")->compression, Compression::kGzip);
  EXPECT_EQ(input_format("A.JSONL.GZ")->kind, InputKind::kJsonLines);
  EXPECT_FALSE(input_format("a.gz"));
  EXPECT_FALSE(input_format("txt"));
}

}  // namespace
}  // namespace athanor::inputs_test
