#include "documents/selection.h"

#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"
#include "documents/attribute_records.h"
#include "documents/documents.h"
#include "documents/testing/compressed.h"

namespace athanor::selection_test {
namespace {

namespace fs = std::filesystem;

class Selecting : public FolderTest {
 protected:
  // Returns a row of documents for each of `ids`, with text t<id>, and a row of attributes {"score": scores[i]} for
  // each.
  static std::string documents(const std::vector<int>& ids) {
    std::string rows;
    for (const int id : ids) {
      rows +=
          nlohmann::json{{"id", id}, {"text", "t" + std::to_string(id)}, {"source", id % 2 ? "odd" : "even"}}.dump();
      rows += "\n";
    }
    return rows;
  }
  static std::string attributes(const std::vector<int>& ids, const char* name = "score") {
    std::string rows;
    for (const int id : ids) {
      rows += nlohmann::json{{"id", id}, {"attributes", {{name, {{0, 2, id}}}}}}.dump() + "\n";
    }
    return rows;
  }

  std::string read(const fs::path& file, SelectionOptions options, OnError on_error = OnError::kFail) {
    std::string texts;
    counts_ = read_documents(file, {"text", on_error, make_selection(std::move(options))},
                             [&](Document&& document) { texts += document.text + " "; });
    return texts;
  }
  template <class E = DataError>
  std::string refused(const fs::path& file, SelectionOptions options, OnError on_error = OnError::kFail) {
    return refusal<E>([&] { read(file, std::move(options), on_error); });
  }

  SkipCounts counts_;
};

TEST_F(Selecting, KeepsWhatEveryKeepAndNoDropSays) {
  const auto file = write("a.jsonl", documents({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read(file, {{}, {"id >= 1", "id <= 4"}, {"source == 'odd'", "id == 4"}}), "t2 ");
  EXPECT_EQ(counts_, (SkipCounts{{"dropped by --keep id >= 1", 1},
                                 {"dropped by --keep id <= 4", 1},
                                 {"dropped by --drop source == 'odd'", 2},
                                 {"dropped by --drop id == 4", 1}}));
}

TEST_F(Selecting, AttributesAreFoundBesideTheDocumentsHoweverTheyAreCompressed) {
  for (const char* name : {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json"}) {
    fs::remove_all(folder_ / "d");
    const std::string ending = fs::path(name).extension();
    const auto rows = attributes({1, 2, 3});
    write(std::string("d/attributes/x/sub/") + name, ending == ".gz"    ? gzip(rows)
                                                     : ending == ".zst" ? zstd(rows)
                                                                        : rows);
    for (const char* documents_name : {"a.jsonl", "a.jsonl.gz"}) {
      const auto text = documents({1, 2, 3});
      const auto file = write(std::string("d/documents/sub/") + documents_name,
                              std::string_view(documents_name).ends_with("gz") ? gzip(text) : text);
      EXPECT_EQ(read(file, {{"x"}, {}, {"max(attributes.score) > 2"}}), "t1 t2 ") << name;
    }
  }
}

TEST_F(Selecting, SeveralAttributeFilesAreOneObject) {
  const auto file = write("documents/a.jsonl", documents({1, 2, 3}));
  write("attributes/x/a.jsonl", attributes({1, 2, 3}, "p"));
  write("attributes/y/a.jsonl", attributes({1, 2, 3}, "q"));
  EXPECT_EQ(read(file, {{"x", "y"}, {"max(attributes.p) + max(attributes.q) == 4"}, {}}), "t2 ");
  write("attributes/y/a.jsonl", attributes({1, 2, 3}, "p"));
  EXPECT_SAYS(refused(file, {{"x", "y"}, {"max(attributes.p) == 4"}, {}}), "attribute \"p\" is in another");
}

TEST_F(Selecting, AttributesOfOtherDocumentsAreRefusedEvenWhereErrorsAreSkipped) {
  const auto file = write("documents/a.jsonl", documents({1, 2, 3}));
  const SelectionOptions options{{"x"}, {"has(attributes.score)"}, {}};
  for (const auto on_error : {OnError::kFail, OnError::kSkip}) {
    EXPECT_SAYS(refused(file, options, on_error), "attributes/x/a.jsonl does not exist");
    write("attributes/x/a.jsonl", attributes({1, 3, 2}));
    EXPECT_SAYS(refused(file, options, on_error), "attributes/x/a.jsonl:2: id 3, but the document");
    write("attributes/x/a.jsonl", attributes({1, 2}));
    EXPECT_SAYS(refused(file, options, on_error), "attributes/x/a.jsonl: ends after 2 rows");
    write("attributes/x/a.jsonl", "");
    EXPECT_SAYS(refused(file, options, on_error), "attributes/x/a.jsonl: ends after 0 rows");
    write("attributes/x/a.jsonl", attributes({1, 2, 3, 4}));
    EXPECT_SAYS(refused(file, options, on_error), "attributes/x/a.jsonl:4: a row too many");
    fs::remove(folder_ / "attributes/x/a.jsonl");
  }
  write("attributes/x/a.jsonl", attributes({1}));
  write("attributes/x/a.jsonl.gz", gzip(attributes({1})));
  write("documents/a.json", documents({1}));
  EXPECT_SAYS(refused(folder_ / "documents/a.json", options), "may be any of");
  EXPECT_SAYS(refused(write("a.jsonl", documents({1})), options), "needs a folder \"documents\"");
  EXPECT_SAYS(refused<ConfigError>(file, {{"x"}, {}, {}}), "--attributes x selects nothing");
}

TEST_F(Selecting, ABadRowOfAttributesIsABadDocument) {
  const auto file = write("documents/a.jsonl", documents({1, 2, 3, 4}));
  const SelectionOptions options{{"x"}, {"max(attributes.score) > 0"}, {}};
  const auto rows = attributes({1}) + "{\"id\": 2, nonsense\n{\"id\": 3}\n" + attributes({4});
  write("attributes/x/a.jsonl", rows);
  EXPECT_SAYS(refused(file, options), "attributes/x/a.jsonl:2: invalid JSON");
  EXPECT_EQ(read(file, options, OnError::kSkip), "t1 t4 ");
  EXPECT_EQ(counts_, (SkipCounts{{kBadAttributes, 2}}));
  write("attributes/x/a.jsonl.gz", gzip(attributes({1, 2, 3, 4})).substr(0, 40));
  fs::remove(folder_ / "attributes/x/a.jsonl");
  EXPECT_SAYS(refused(file, options), "attributes/x/a.jsonl.gz: gzip data is cut off");
}

TEST_F(Selecting, ABadDocumentTakesItsAttributesWithIt) {
  const auto file = write("documents/a.jsonl", documents({1}) + "nonsense\n\n" + documents({3}));
  write("attributes/x/a.jsonl", attributes({1, 2, 3}));
  EXPECT_EQ(read(file, {{"x"}, {"max(attributes.score) > 0"}, {}}, OnError::kSkip), "t1 t3 ");
}

TEST_F(Selecting, AValueThatDoesNotFitNamesDocumentAndPosition) {
  const auto file = write("a.jsonl", documents({1, 2}));
  EXPECT_SAYS(refused(file, {{}, {}, {"id > 1 and source > 3"}}),
              "a.jsonl:2: --drop 'id > 1 and source > 3', position");
  EXPECT_SAYS(refused<ConfigError>(file, {{}, {}, {"id >"}}), "--drop 'id >': position 5: a value is expected");
}

TEST_F(Selecting, ATextNamedByAPathIsReadByThatPath) {
  const auto file = write("a.jsonl", R"({"doc":{"body":"long text"}})"
                                     "\n"
                                     R"({"doc.body":"short"})");
  std::string texts;
  SelectionOptions options;
  options.keep = {"len(doc.body) > 5"};
  read_documents(file, {.text_field = "doc.body", .selection = make_selection(options)},
                 [&](Document&& document) { texts += document.text; });
  EXPECT_EQ(texts, "long text");
}

TEST_F(Selecting, PathsThatNoDocumentHasAreTold) {
  const auto file = write("a.jsonl", documents({1, 2}));
  const auto selection = make_selection({{}, {"id > 0 or sorce == 'x' or metadata.a > 1"}, {"len(text) > 9"}});
  EXPECT_TRUE(selection->paths_never_found().empty());
  read_documents(file, {"text", OnError::kFail, selection}, [](Document&&) {});
  EXPECT_EQ(selection->paths_never_found(), (std::vector<std::string>{"sorce", "metadata.a"}));
}

}  // namespace
}  // namespace athanor::selection_test
