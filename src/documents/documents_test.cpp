#include <algorithm>

#include "documents/documents.h"

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "documents/testing/compressed.h"

namespace athanor::documents_test {
namespace {

using Texts = std::vector<std::string>;

class Documents : public FolderTest {
 protected:
  Texts read(const std::string& name, const std::string& bytes, OnError on_error = OnError::kFail) {
    Texts texts;
    wheres_.clear();
    skipped_ =
        read_documents(write(name, bytes), {.text_field = "text", .on_error = on_error}, [&](Document&& document) {
          texts.push_back(document.text);
          wheres_.push_back(document.where.substr(folder_.string().size() + 1));
        });
    return texts;
  }
  Texts skip(const std::string& name, const std::string& bytes) { return read(name, bytes, OnError::kSkip); }
  std::string refused(const std::string& name, const std::string& bytes) {
    const auto message = refusal<DocumentError>([&] { read(name, bytes); });
    EXPECT_TRUE(message.starts_with((folder_ / name).string())) << message;
    return message.substr(std::min(message.size(), folder_.string().size() + 1));
  }

  std::vector<std::string> wheres_;
  SkipCounts skipped_;
};

std::string many_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "{\"id\": " + std::to_string(i) + ", \"text\": \"document " + std::to_string(i) + "\"}\n";
  return lines;
}

TEST_F(Documents, ATextFileIsOneDocument) {
  EXPECT_EQ(read("a.txt", "one\r\ntwo\n"), (Texts{"one\r\ntwo\n"}));
  EXPECT_EQ(wheres_, (Texts{"a.txt"}));
  EXPECT_EQ(read("a.md", "\xEF\xBB\xBF# T"), (Texts{"# T"})) << "a byte order mark is no text";
}

TEST_F(Documents, LinesOfJsonAreDocumentsAndBlankOnesAreNot) {
  EXPECT_EQ(
      read("a.jsonl", "{\"text\":\"a\"}\r\n\n  \n{\"id\":[{\"text\":\"no\"}],\"text\":\"\\u00e9\\n\\ud83d\\ude00\"}"),
      (Texts{"a", "é\n😀"}));
  EXPECT_EQ(wheres_, (Texts{"a.jsonl:1", "a.jsonl:4"}));
}

TEST_F(Documents, ANestedFieldOfTheSameNameIsNotTheText) {
  EXPECT_EQ(read("a.jsonl", R"({"meta":{"text":"no","x":["text"]},"text":"yes","more":{"text":"no"}})"),
            (Texts{"yes"}));
}

TEST_F(Documents, AJsonFileMayBeLinesAnArrayOrObjectsOverLines) {
  EXPECT_EQ(read("a.json", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n"), (Texts{"a", "b"}));
  EXPECT_EQ(read("a.json", "\n [{\"text\":\"a]\\\"\"}, \"b,\",\n \"c\"] \n"), (Texts{"a]\"", "b,", "c"}));
  EXPECT_EQ(wheres_, (Texts{"a.json:2", "a.json:2", "a.json:3"}));
  EXPECT_EQ(read("a.json", "{\n  \"text\": \"a}\"\n}\n{\n  \"text\":\n \"b\", \"x\": [{}]\n}"), (Texts{"a}", "b"}));
  EXPECT_EQ(wheres_, (Texts{"a.json:1", "a.json:4"}));
}

TEST_F(Documents, CompressionChangesNothing) {
  const auto lines = many_lines(20000);
  const auto plain = read("a.jsonl", lines);
  ASSERT_EQ(plain.size(), 20000u);
  const auto half = lines.find('\n', lines.size() / 2) - 5;  // inside a line
  const auto a = lines.substr(0, half), b = lines.substr(half);
  EXPECT_EQ(read("a.jsonl.gz", gzip(lines)), plain);
  EXPECT_EQ(read("a.jsonl.gz", gzip(a) + gzip("") + gzip(b) + std::string(1000, '\0')), plain) << "members, padding";
  EXPECT_EQ(read("a.jsonl.zst", zstd(lines)), plain);
  EXPECT_EQ(read("a.jsonl.zst", zstd(a) + zstd("") + zstd(b)), plain) << "frames";
  EXPECT_EQ(read("a.txt.gz", gzip("text")), (Texts{"text"}));
}

TEST_F(Documents, CutOffCompressionIsNamedByByte) {
  const auto gz = gzip(many_lines(20000)), zst = zstd(many_lines(20000));
  for (const size_t size : {size_t{1}, size_t{11}, gz.size() / 2, gz.size() - 1}) {
    const auto message = refused("a.jsonl.gz", gz.substr(0, size));
    EXPECT_SAYS(message, "gzip data is cut off: the file ends at byte " + std::to_string(size));
  }
  for (const size_t size : {size_t{3}, size_t{11}, zst.size() / 2, zst.size() - 1}) {
    const auto message = refused("a.jsonl.zst", zst.substr(0, size));
    EXPECT_SAYS(message, "zstd data is cut off: the file ends at byte " + std::to_string(size));
  }
}

TEST_F(Documents, DamagedCompressionIsNamedByByte) {
  auto gz = gzip(many_lines(20000)), zst = zstd(many_lines(20000));
  gz[gz.size() / 2] = static_cast<char>(gz[gz.size() / 2] ^ 0x55);
  zst[zst.size() / 2] = static_cast<char>(zst[zst.size() / 2] ^ 0x55);
  EXPECT_SAYS(refused("a.jsonl.gz", gz), "damaged gzip at byte");
  EXPECT_SAYS(refused("a.jsonl.zst", zst), "damaged zstd at byte");
  EXPECT_SAYS(refused("a.jsonl.gz", "\1\2\3\4"), "damaged gzip at byte 2: incorrect header check");
  EXPECT_SAYS(refused("a.jsonl.zst", "\1\2\3\4\5\6\7\10\11\12"), "damaged zstd at byte 0: Unknown frame descriptor");
  EXPECT_SAYS(refused("a.jsonl.gz", gzip(many_lines(1)) + "more"), "damaged gzip");
  EXPECT_SAYS(refused("a.jsonl.gz", gzip(many_lines(1)) + std::string("\0\0x", 3)), "neither zeros nor another member");
}

TEST_F(Documents, ContentOfAnotherKindIsNamedAndNotCalledDamaged) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
  for (const char* name : {"a.txt", "a.md", "a.jsonl", "a.json", "a.jsonl.gz", "a.jsonl.zst"}) {
    EXPECT_SAYS(refused(name, pointer),
                std::string(name) + " is a pointer of Git LFS, not the file itself; get the file");
  }
  const std::string row = "{\"text\":\"a\"}\n";
  EXPECT_SAYS(refused("a.jsonl", gzip(row)), "a.jsonl is compressed by gzip; give its name the ending .gz too");
  EXPECT_SAYS(refused("a.txt", zstd(row)), "a.txt is compressed by zstd; give its name the ending .zst too");
  EXPECT_SAYS(refused("a.jsonl.gz", row), "a.jsonl.gz is text, not gzip; give its name the ending of what it holds");
  EXPECT_SAYS(refused("a.jsonl.zst", row), "a.jsonl.zst is text, not zstd");
  EXPECT_SAYS(refused("a.jsonl.gz", zstd(row)), "a.jsonl.gz is compressed by zstd; decompress it");
  EXPECT_SAYS(refused("a.jsonl.gz", gzip(gzip(row))), "what is compressed in it is compressed by gzip");
  EXPECT_SAYS(refused("a.jsonl", "<!DOCTYPE html>\n<html>"), "a.jsonl is an HTML page");
  EXPECT_EQ(read("a.txt", "<html>a</html>"), (Texts{"<html>a</html>"})) << "a page may be a document";
  EXPECT_SAYS(refused("a.txt", std::string(257, '\0') + "ustar"), "a.txt is a tar archive; unpack it");
  EXPECT_EQ(skip("a.txt", pointer), Texts{});
  EXPECT_EQ(skipped_, (SkipCounts{{kOtherContent, 1}}));
}

constexpr unsigned char kWindow2GiB = 21 << 3, kWindow128MiB = 17 << 3;

TEST_F(Documents, AZstdWindowOfTwoGibibytesIsReadWhereMemoryAllowsIt) {
  const auto frame = zstd_frame("{\"text\":\"a\"}\n", kWindow2GiB);
  EXPECT_EQ(read("a.jsonl.zst", frame), (Texts{"a"}));
  const auto file = write("a.jsonl.zst", zstd("{\"text\":\"b\"}\n") + frame);
  Texts texts;
  const auto message = refusal<DocumentError>([&] {
    read_documents(file, {.max_zstd_window = uint64_t{128} << 20},
                   [&](Document&& document) { texts.push_back(document.text); });
  });
  EXPECT_SAYS(message, "has a window of 2.00GiB, and 128.00MiB is the most here; decompress the file");
  EXPECT_EQ(texts, (Texts{"b"}));
  EXPECT_SAYS(refused("a.jsonl.zst", zstd_frame("", kWindow2GiB + 8)), "has a window of 4.00GiB, and 2.00GiB is");
}

TEST_F(Documents, AZstdDictionaryIsNamedAsNotSupported) {
  EXPECT_SAYS(
      refused("a.jsonl.zst", zstd_frame("x", kWindow128MiB, 7)),
      "the zstd frame at byte 0 needs a dictionary (number 7), which is not supported; decompress it with `zstd -d "
      "-D");
  skip("a.jsonl.zst", zstd_frame("x", kWindow128MiB, 7));
  EXPECT_EQ(skipped_, (SkipCounts{{kUnsupportedCompression, 1}}));
}

TEST_F(Documents, WhatStandsBeforeTheDamageIsKeptWhenSkipping) {
  const auto gz = gzip(many_lines(20000));
  const auto texts = skip("a.jsonl.gz", gz.substr(0, gz.size() / 2));
  EXPECT_GT(texts.size(), 5000u);
  EXPECT_LT(texts.size(), 15000u);
  EXPECT_EQ(texts.back(), "document " + std::to_string(texts.size() - 1)) << "no half document";
  EXPECT_EQ(skipped_, (SkipCounts{{kDamagedCompression, 1}}));
}

TEST_F(Documents, InvalidUtf8IsNamedByLineAndByte) {
  EXPECT_SAYS(refused("a.txt", "one\ntw\xFFo"), "a.txt:2: invalid UTF-8 at byte 2 of the line (0xFF)");
  EXPECT_SAYS(refused("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xC3(\"}"), "a.jsonl:2: invalid UTF-8 at byte 9");
  EXPECT_SAYS(refused("a.json", "[\"a\", \"b\xED\xA0\x80\"]"), "a.json:1: invalid UTF-8 at byte 8");
}

TEST_F(Documents, InvalidJsonIsNamedByLineAndByte) {
  EXPECT_SAYS(refused("a.jsonl", "{\"text\":\"a\"}\n\n{\"text\": 'b'}"),
              "a.jsonl:3: invalid JSON at byte 9 of the line");
  EXPECT_SAYS(refused("a.jsonl", "{\"text\":\"a\"} x"), "a.jsonl:1: invalid JSON at byte 13");
  EXPECT_SAYS(refused("a.jsonl", "{\"text\":\"a"), "a.jsonl:1: invalid JSON");
  EXPECT_SAYS(refused("a.json", "{\n\"text\":\n\"a\" \"b\"}"), "a.json:3: invalid JSON at byte 6");
  EXPECT_SAYS(refused("a.json", "[\"a\",,\"b\"]"), "a.json:1: invalid JSON at byte 5");
  EXPECT_SAYS(refused("a.json", "[\"a\",\n\"b\"\n\n"),
              "a.json:4: the file ends inside its JSON array, in what starts at line 2");
  EXPECT_SAYS(refused("a.json", "[\"a\"]\n x"), "a.json:2: text after the end of the JSON array");
  EXPECT_SAYS(refused("a.jsonl", R"({"text":"a","text":"b"})"), "\"text\" occurs 2 times");
}

TEST_F(Documents, ATextFieldIsAnExactNameFirstAndThenAPath) {
  const auto texts = [&](const std::string& rows) {
    Texts found;
    read_documents(write("a.jsonl", rows), {.text_field = "doc.body"},
                   [&](Document&& document) { found.push_back(document.text); });
    return found;
  };
  EXPECT_EQ(texts(R"({"doc":{"x":{"body":"no"},"body":"nested"},"body":"no"})"), Texts{"nested"});
  EXPECT_EQ(texts(R"({"doc":{"body":"nested"},"doc.body":"exact"})"), Texts{"exact"});
  EXPECT_EQ(texts(R"({"x":[1,{"doc":{"body":"no"}}],"doc":{"body":"b","y":NaN}})"), Texts{"b"}) << "not the fast path";
  EXPECT_EQ(texts("{\"doc.body\":\"a\"}\n{\"doc\":{\"body\":\"b\"}}"), (Texts{"a", "b"}));
  const auto refuses = [&](const std::string& row) { return refusal<DocumentError>([&] { texts(row); }); };
  EXPECT_SAYS(refuses(R"({"doc":{"body":"a","body":"b"}})"), "the field \"doc.body\" occurs 2 times");
  EXPECT_SAYS(refuses(R"({"doc":{"body":"a"},"doc":{"body":"b"}})"), "the field \"doc.body\" occurs 2 times");
  EXPECT_SAYS(refuses(R"({"doc":{"body":1}})"), "the field \"doc.body\" is a number");
  EXPECT_SAYS(refuses(R"({"doc":null})"), "the field \"doc.body\" is null");
  EXPECT_SAYS(refuses(R"({"doc":[{"body":"a"}]})"), "no field \"doc.body\"; there is doc");
  EXPECT_SAYS(refuses(R"({"doc":{"body":"a"},"doc.body":2})"), "the field \"doc.body\" is a number");
}

TEST_F(Documents, WhatOnlyPythonWritesSpoilsNoFieldButTheText) {
  EXPECT_EQ(read("a.jsonl",
                 "{\"text\":\"NaN \\ud83d\\ude00\",\"score\":NaN,\"s\":[-Infinity,Infinity,{\"x\":1e999}]}\n"
                 "{\"title\":\"\\ud83d\",\"text\":\"\\ufffd\"}\n{\"\\udc00\":\"\\\\ud83d\",\"text\":\"b\"}"),
            (Texts{"NaN 😀", "\uFFFD", "b"}));
  EXPECT_SAYS(refused("a.jsonl", R"({"text":"a\ud83d","score":NaN})"),
              "a.jsonl:1: invalid JSON at byte 16 of the line");
  EXPECT_SAYS(refused("a.jsonl", R"({"text":NaN})"), "the field \"text\" is a number, a string is needed");
  for (const char* row : {R"({"text":"a","x":nan})", R"({"text":"a","x":NaNs})", R"({"text":"a","x":+Infinity})",
                          R"({"text":"a","x":1e+})", R"({"text":"a","x":NaN)", R"({"text":"a","x":"\ud83"})"}) {
    EXPECT_SAYS(refused("a.jsonl", row), "a.jsonl:1: invalid JSON at byte") << row;
  }
}

TEST_F(Documents, AMissingFieldIsNamedWithThoseThereAre) {
  EXPECT_SAYS(refused("a.jsonl", R"({"message":"a","meta":{"x":1}})"),
              "a.jsonl:1: no field \"text\"; there is message, meta");
  EXPECT_SAYS(refused("a.jsonl", R"({"texts":"a"})"), "did you mean \"texts\"?");
  EXPECT_SAYS(refused("a.jsonl", "{}"), "the object is empty");
  EXPECT_SAYS(refused("a.jsonl", "[1]"), "an object with the field \"text\" is needed, this is an array");
  EXPECT_SAYS(refused("a.jsonl", "\"a\""), "an object with the field \"text\" is needed, this is a string");
  EXPECT_SAYS(refused("a.json", "[1]"), "this is a number");
}

TEST_F(Documents, AFieldThatIsNoStringIsNamedByItsKind) {
  EXPECT_SAYS(refused("a.jsonl", R"({"text":null})"), "a.jsonl:1: the field \"text\" is null, a string is needed");
  EXPECT_SAYS(refused("a.jsonl", R"({"text":{"text":"a"}})"), "the field \"text\" is an object");
  EXPECT_SAYS(refused("a.jsonl", R"({"text":["a"]})"), "the field \"text\" is an array");
  EXPECT_SAYS(refused("a.jsonl", R"({"text":1.5})"), "the field \"text\" is a number");
}

TEST_F(Documents, AFileWithoutDocumentsIsNamed) {
  EXPECT_SAYS(refused("a.txt", ""), "a.txt is empty; leave it out");
  EXPECT_SAYS(refused("a.jsonl.gz", gzip("")), "a.jsonl.gz is empty; leave it out");
  EXPECT_SAYS(refused("a.jsonl.zst", ""), "a.jsonl.zst is empty; leave it out");
  EXPECT_EQ(refused("a.jsonl", "\n \n"), "a.jsonl holds no documents");
  EXPECT_EQ(refused("a.json", "[ ]"), "a.json holds no documents");
}

TEST_F(Documents, SkippedDocumentsAreCountedByCause) {
  EXPECT_EQ(
      skip("a.jsonl", "{\"text\":\"a\"}\n{\n{\"x\":1}\n{\"text\":1}\n{\"text\":\"\xFF\"}\nnull\n{\"text\":\"b\"}\n"),
      (Texts{"a", "b"}));
  EXPECT_EQ(skipped_, (SkipCounts{{kInvalidJson, 1}, {kMissingField, 2}, {kFieldNotString, 1}, {kInvalidUtf8, 1}}));
  EXPECT_EQ(skip("a.txt", ""), Texts{});
  EXPECT_EQ(skipped_, (SkipCounts{{kNoDocuments, 1}}));
}

TEST_F(Documents, ABadLineOfAJsonFileCostsThatLineOnly) {
  EXPECT_EQ(skip("a.json", "{\"text\":\"a\"\n{\"text\":\"b\"}\n{\"text\":\"c\n{\"text\":\"d\"}\n"), (Texts{"b", "d"}));
  EXPECT_EQ(skip("a.json", "{\n\"text\":\"a\n}\n{\"text\":\n\"b\"}\n").back(), "b");
}

TEST_F(Documents, ADocumentLargerThanTheLimitEndsItsFile) {
  Record record;
  RecordReader reader(write("a.jsonl", "{\"text\":\"a\"}\n" + std::string(100, 'x')), 50);
  EXPECT_TRUE(reader.next(record));
  EXPECT_SAYS(refusal<DocumentError>([&] { reader.next(record); }), "a.jsonl:2: a document of more than");
  EXPECT_FALSE(reader.next(record));
  for (const auto& name : {"b.txt", "b.json"}) {
    RecordReader other(write(name, "[\"" + std::string(100000, 'x')), 50);
    EXPECT_SAYS(refusal<DocumentError>([&] { other.next(record); }), "a document of more than");
  }
}

TEST_F(Documents, TheRowsOfDolmaAreReadInEveryFormat) {
  const auto data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data next to the project";
  const auto read_all = [](const std::filesystem::path& file, const DocumentOptions& options) {
    Texts texts;
    read_documents(file, options, [&](Document&& document) { texts.push_back(std::move(document.text)); });
    return texts;
  };
  const auto dolma = data / "text/dolma";
  EXPECT_EQ(read_all(data / "text/dolma_form/books-400.jsonl.gz", {}),
            read_all(data / "text/dolma_form/books-400.jsonl.zst", {}));
  const auto rows = read_all(dolma / "multiple_files/cc_en_head-0091.jsonl", {});
  EXPECT_GT(rows.size(), 5u);
  EXPECT_EQ(rows, read_all(dolma / "multiple_files/cc_en_head-0091.jsonl.gz", {}));
  for (const char* ending : {"", ".gz", ".zst"}) {
    const auto file = dolma / (std::string("data/formats/test.jsonl") + ending);
    EXPECT_EQ(read_all(file, {.text_field = "message"}), (Texts{"this is a test"}));
    EXPECT_SAYS(refusal<DocumentError>([&] { read_all(file, {}); }), ":1: no field \"text\"; there is message");
  }
  EXPECT_GT(read_all(dolma / "data/provided/documents/000.json.gz", {}).size(), 3u);
  EXPECT_SAYS(refusal<DocumentError>([&] { read_all(dolma / "data/provided/attributes/pii/000.json.gz", {}); }),
              ":1: no field \"text\"; there is id, attributes");
  EXPECT_EQ(read_all(data / "text/blns.json", {}).size(), 515u);
}

}  // namespace
}  // namespace athanor::documents_test
