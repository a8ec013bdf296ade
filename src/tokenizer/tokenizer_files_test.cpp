#include "tokenizer/tokenizer_files.h"

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::tokenizer_files_test {
namespace {

class TokenizerFiles : public FolderTest {
 protected:
  std::string refused(const std::string& name, const std::string& bytes) {
    const auto file = write(name, bytes);
    return message_of<DataError>([&] { load_tokenizer_files(file); });
  }
};

TEST_F(TokenizerFiles, AFileThatWasNotFetchedIsNamedAsThat) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
    write("merges.txt", "");
    EXPECT_SAYS(refused(name, pointer),
                std::string(name) + " is a pointer of Git LFS, not the file itself; get the file");
  }
  EXPECT_SAYS(refused("tokenizer.json", "<!doctype html><html>"), "tokenizer.json is an HTML page");
  EXPECT_SAYS(refused("tokenizer.json", "\x1F\x8B\x08 and more"),
              "tokenizer.json is compressed by gzip; decompress it");
}

TEST_F(TokenizerFiles, AVocabularyOfTiktokenIsNamedAsNotRead) {
  for (const char* bytes : {"IQ== 0\nIg== 1\n", "IQ== 0", "IHRoZQ== 262\r\n"}) {
    EXPECT_SAYS(refused("tokenizer.model", bytes),
                "is a vocabulary of tiktoken, which is not read here; name the model's");
  }
  for (const char* bytes : {"IQ= 0\n", "IQ==\n", " 0\n", "I Q\n", ""}) {
    EXPECT_SAYS(refused("tokenizer.model", bytes), "no SentencePiece model") << bytes;
  }
}

}  // namespace
}  // namespace athanor::tokenizer_files_test
