#include "prepare/prepare.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "documents/testing/compressed.h"
#include "prepare/memory_budget.h"
#include "prepare/prepare_job.h"
#include "prepare/testing/data_test.h"

namespace athanor::prepare_test {
namespace {

namespace fs = std::filesystem;
using Row = std::vector<int32_t>;
using Rows = std::vector<Row>;

constexpr int32_t kEos = 256;

// Returns the instances that `documents`, in this order, make with the byte tokenizer.
Rows expected_rows(const std::vector<std::string>& documents, size_t seq_len) {
  Row stream;
  for (const auto& document : documents) {
    for (const char c : document) stream.push_back(static_cast<unsigned char>(c));
    stream.push_back(kEos);
  }
  Rows rows;
  for (size_t at = 0; at + seq_len <= stream.size(); at += seq_len) {
    rows.emplace_back(stream.begin() + static_cast<std::ptrdiff_t>(at),
                      stream.begin() + static_cast<std::ptrdiff_t>(at + seq_len));
  }
  return rows;
}

Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::string json_row(const std::string& text) { return nlohmann::json{{"text", text}}.dump() + "\n"; }

class Preparing : public DataTest {
 protected:
  // Returns {file in the folder: hash}.
  static std::map<std::string, std::string> hashes(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) {
      all[entry.path().filename().string()] = hash_file(entry.path());
    }
    return all;
  }
  // Writes several files of several kinds with documents of many lengths, enough for many chunks.
  std::vector<std::string> write_corpus() {
    for (int f = 0; f < 5; ++f) {
      std::string rows;
      for (int i = 0; i < 300; ++i) {
        documents_.push_back("file " + std::to_string(f) + " row " + std::to_string(i) + std::string(i % 37, '.'));
        rows += json_row(documents_.back());
      }
      const auto name = "c/" + std::to_string(f) + ".jsonl";
      if (f % 2) write(name, rows);
      if (f % 2 == 0) write(name + ".gz", gzip(rows));
    }
    return {(folder_ / "c").string()};
  }
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
    }
  }

  std::vector<std::string> documents_;
};

TEST_F(Preparing, InstancesAreTheStreamOfAllFilesCutAndShuffled) {
  auto made = options(write_corpus(), 16);
  const auto manifest = prepare(made);
  const auto rows = rows_of(made.out, "train");
  const auto expected = expected_rows(documents_, 16);
  EXPECT_EQ(sorted(rows), sorted(expected));
  EXPECT_NE(rows, expected) << "not shuffled";
  EXPECT_EQ(manifest.documents, 1500);
  EXPECT_EQ(manifest.tokens, static_cast<int64_t>(expected.size() * 16) + manifest.remainder_tokens);
  EXPECT_EQ(manifest.text_bytes + 1500, manifest.tokens);
  EXPECT_EQ(manifest.dtype, "uint16");
  EXPECT_EQ(manifest.eos_id, 256u);
  ASSERT_EQ(manifest.inputs.size(), 5u);
  EXPECT_EQ(manifest.inputs[3].documents, 300);
}

TEST_F(Preparing, ThePermutationIsOverAllFiles) {
  auto made = options(write_corpus(), 16);
  prepare(made);
  // Some instances contain "file <f>": those of file 0 must not all be at the front.
  const auto rows = rows_of(made.out, "train");
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string text(rows[i].begin(), rows[i].end());
    if (text.find("file 0") != std::string::npos) places.push_back(i);
  }
  ASSERT_GT(places.size(), 50u);
  EXPECT_LT(places.front(), rows.size() / 10);
  EXPECT_GT(places.back(), rows.size() * 9 / 10);
  EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
}

TEST_F(Preparing, NoByteDependsOnThreads) {
  auto made = options(write_corpus(), 16);
  made.chunk_bytes = 500;
  made.shard_bytes = 2000;
  made.validation_fraction = 0.1;
  prepare(made);
  const auto expected = hashes(made.out);
  EXPECT_GT(expected.size(), 10u);
  for (const int num_threads : {2, 3, 8}) {
    made.num_threads = num_threads;
    made.overwrite = true;
    prepare(made);
    EXPECT_EQ(hashes(made.out), expected) << num_threads << " threads";
  }
}

TEST_F(Preparing, TheSeedChangesTheOrderOnly) {
  auto made = options(write_corpus(), 16);
  prepare(made);
  const auto first = rows_of(made.out, "train");
  made.seed = 2;
  made.overwrite = true;
  prepare(made);
  const auto second = rows_of(made.out, "train");
  EXPECT_NE(first, second);
  EXPECT_EQ(sorted(first), sorted(second));
}

TEST_F(Preparing, SmallFilesAreJoinedAndTheRemainderIsCounted) {
  std::vector<std::string> documents;
  for (int i = 0; i < 100; ++i) {
    documents.push_back(std::string(1, static_cast<char>('0' + i / 10)) + static_cast<char>('0' + i % 10));
    write("d/" + documents.back() + ".txt", documents.back());
  }
  auto made = options({(folder_ / "d").string()}, 16);
  const auto manifest = prepare(made);
  EXPECT_EQ(manifest.tokens, 300);
  EXPECT_EQ(manifest.splits.at("train").instances, 18);
  EXPECT_EQ(manifest.remainder_tokens, 300 - 18 * 16);
  EXPECT_EQ(sorted(rows_of(made.out, "train")), sorted(expected_rows(documents, 16)));
}

TEST_F(Preparing, ValidationTakesItsShareAndSharesNoInstance) {
  auto made = options(write_corpus(), 16);
  made.validation_fraction = 0.1;
  const auto manifest = prepare(made);
  const auto train = rows_of(made.out, "train"), validation = rows_of(made.out, "validation");
  EXPECT_EQ(static_cast<int64_t>(validation.size()),
            num_validation_instances(static_cast<int64_t>(train.size() + validation.size()), 0.1));
  auto together = train;
  together.insert(together.end(), validation.begin(), validation.end());
  EXPECT_EQ(sorted(together), sorted(expected_rows(documents_, 16)));
}

TEST(NumValidationInstances, IsAtLeastOneAndNeverAll) {
  EXPECT_EQ(num_validation_instances(1000, 0), 0);
  EXPECT_EQ(num_validation_instances(1000, 0.0001), 1);
  EXPECT_EQ(num_validation_instances(1000, 0.05), 50);
  EXPECT_EQ(num_validation_instances(2, 0.99), 1);
}

TEST_F(Preparing, AnEmptyDocumentIsAnEndTokenAlone) {
  auto made = options({write("a.jsonl", json_row("ab") + json_row("") + json_row("c")).string()}, 2);
  prepare(made);
  EXPECT_EQ(sorted(rows_of(made.out, "train")), sorted(expected_rows({"ab", "", "c"}, 2)));
}

TEST_F(Preparing, TheFirstErrorIsNamedWhateverTheThreads) {
  write_corpus();
  write("c/1.jsonl", read_file(folder_ / "c/1.jsonl") + "{\n");
  write("c/3.jsonl", "{\n" + read_file(folder_ / "c/3.jsonl"));
  auto made = options({(folder_ / "c").string()}, 16);
  made.chunk_bytes = 500;
  for (const int num_threads : {1, 2, 8}) {
    made.num_threads = num_threads;
    EXPECT_SAYS(refusal<DataError>([&] { prepare(made); }), "c/1.jsonl:301: invalid JSON");
    expect_nothing_left();
  }
}

TEST_F(Preparing, AnErrorThatIsFoundLaterButStandsEarlierIsTheOneNamed) {
  std::string slow;
  for (int i = 0; i < 300000; ++i) slow += "word" + std::to_string(i) + " ";
  auto made = options({write("a.jsonl", json_row(slow) + "{\n").string(), write("b.jsonl", "{\n").string()});
  made.chunk_bytes = uint64_t{1} << 24;
  made.num_threads = 2;
  EXPECT_SAYS(refusal<DataError>([&] { prepare(made); }), "a.jsonl:2: invalid JSON");
}

TEST_F(Preparing, SkippedDocumentsAreCountedInTheManifest) {
  auto made = options({write("a.jsonl", json_row("good") + "{\n{\"x\":1}\n" + json_row("also")).string(),
                       write("b.jsonl.gz", gzip(json_row("more")).substr(0, 20)).string()},
                      4);
  made.documents.on_error = OnError::kSkip;
  const auto manifest = prepare(made);
  EXPECT_EQ(manifest.documents, 2);
  EXPECT_EQ(manifest.skipped, (SkipCounts{{kInvalidJson, 1}, {kMissingField, 1}, {kDamagedCompression, 1}}));
  EXPECT_EQ(read_data_manifest(made.out).skipped, manifest.skipped);
}

TEST_F(Preparing, TooFewTokensAreRefusedWithTheCounts) {
  auto made = options({write("a.txt", "abc").string()}, 8);
  EXPECT_SAYS(refusal<DataError>([&] { prepare(made); }), "4 tokens make 0 instances of 8, at least 1 is needed");
  made.seq_len = 4;
  made.validation_fraction = 0.5;
  EXPECT_SAYS(refusal<DataError>([&] { prepare(made); }), "at least 2 is needed");
  made.inputs = {write("b.jsonl", "{\n").string()};
  made.documents.on_error = OnError::kSkip;
  EXPECT_SAYS(refusal<DataError>([&] { prepare(made); }), "no documents in 1 files (skipped: 1 invalid JSON)");
  expect_nothing_left();
}

TEST_F(Preparing, OptionsOutsideTheirRangeAreRefused) {
  const auto base = options({write("a.txt", "abcdefghijklmnop").string()}, 4);
  const auto refused = [&](auto change) {
    auto made = base;
    change(made);
    return refusal<ConfigError>([&] { prepare(made); });
  };
  EXPECT_SAYS(refused([](auto& o) { o.seq_len = 1; }), "--seq-len (1) must be in [2,");
  EXPECT_SAYS(refused([](auto& o) { o.validation_fraction = 1; }), "--validation-fraction (1) must be in [0, 1)");
  EXPECT_SAYS(refused([](auto& o) { o.num_threads = -1; }), "--threads (-1)");
  EXPECT_SAYS(refused([](auto& o) { o.shard_bytes = 0; }), "--shard-bytes (0)");
}

TEST_F(Preparing, AFolderThatIsThereIsReplacedOnlyWhenToldAndOnlyIfPrepared) {
  auto made = options({write("a.txt", "abcdefghijklmnop").string()}, 4);
  prepare(made);
  const auto before = hashes(made.out);
  made.seed = 7;
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "is not empty; --overwrite replaces it");
  EXPECT_EQ(hashes(made.out), before);
  made.overwrite = true;
  made.inputs = {write("bad.txt", "\xFF").string()};
  refusal<DataError>([&] { prepare(made); });
  EXPECT_EQ(hashes(made.out), before) << "a failure leaves the old data";
  made.inputs = {(folder_ / "a.txt").string()};
  prepare(made);
  EXPECT_NE(hashes(made.out), before);
  EXPECT_FALSE(fs::exists(folder_ / "out.partial"));
  made.out = folder_ / "precious";
  write("precious/thesis.txt", "years of work");
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "contains something other than prepared data");
  // A checkpoint has a manifest.json, too.
  write(fs::path(made.out) / kDataManifestName, "{\"hash\": \"0\",\n\"format\": \"athanor-checkpoint\"}");
  for (const bool overwrite : {false, true}) {
    made.overwrite = overwrite;
    EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "contains something other than prepared data");
  }
  made.out = folder_ / "a.txt";
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "is a file");
}

TEST_F(Preparing, AnInputInTheFolderToBeReplacedIsRefused) {
  auto made = options({write("a.txt", "abcdefghijklmnop").string()}, 4);
  prepare(made);
  made.overwrite = true;
  made.inputs = {write("out/more.txt", "abcdefgh").string()};
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "more.txt is in --out");
}

TEST_F(Preparing, TheTokenizerIsCopiedWithItsHash) {
  auto made = options({write("a.txt", "abcdefghijklmnop").string()}, 4);
  const auto manifest = prepare(made);
  EXPECT_EQ(read_file(made.out / "tokenizer.json"), read_file(made.tokenizer));
  EXPECT_EQ(manifest.tokenizer_hash, hash_file(made.tokenizer));
}

TEST_F(Preparing, ALargeVocabularyTakesFourBytes) {
  auto made = options({write("a.txt", "ab<|far|>cdefghijklm").string()}, 4);
  auto json = byte_tokenizer_json();
  json["added_tokens"].push_back(added_token_json(256, "<|endoftext|>"));
  json["added_tokens"].push_back(added_token_json(257, "<|far|>"));
  // An id above 65535 needs as many tokens below it.
  for (int id = 258; id <= 65536; ++id)
    json["added_tokens"].push_back(added_token_json(id, "<" + std::to_string(id) + ">"));
  made.tokenizer = write("large.json", json.dump());
  const auto manifest = prepare(made);
  EXPECT_EQ(manifest.dtype, "uint32");
  EXPECT_EQ(manifest.vocab_size, 65537u);
  const auto rows = rows_of(made.out, "train");
  EXPECT_NE(std::find(rows.begin(), rows.end(), (Row{'a', 'b', 257, 'c'})), rows.end());
}

// The byte tokenizer, which puts <s> before a text and </s> behind it.
class Templated : public Preparing {
 protected:
  void SetUp() override {
    Preparing::SetUp();
    auto json = byte_tokenizer_json();
    json["added_tokens"] = {added_token_json(256, "<s>"), added_token_json(257, "</s>")};
    const auto special = [](const char* name) {
      return nlohmann::json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
    };
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {special("<s>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, special("</s>")}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}}}, {"</s>", {{"id", "</s>"}, {"ids", {257}}}}}}};
    options_.tokenizer = write("templated/tokenizer.json", json.dump());
    options_.inputs = {write("t.txt", "ab").string()};
    options_.seq_len = 2;
    options_.out = folder_ / "out";
    options_.num_threads = 1;
  }
  std::vector<int32_t> stream() const {
    Row all;
    for (const auto& row : sorted(rows_of(options_.out, "train"))) all.insert(all.end(), row.begin(), row.end());
    return all;
  }
  PrepareOptions options_;
};

TEST_F(Templated, WhatTheTokenizerPutsAroundATextIsAroundDocumentsIfAsked) {
  options_.add_special_tokens = true;
  const auto manifest = prepare(options_);
  EXPECT_EQ(manifest.text_template, (TextTemplate{{256}, {}})) << "</s> ends a document in any case";
  EXPECT_EQ(stream(), (Row{98, 257, 256, 97}));
  EXPECT_EQ(read_data_manifest(options_.out).text_template, manifest.text_template);
}

TEST_F(Templated, WithoutBeingAskedThereIsNothingAroundADocument) {
  EXPECT_FALSE(plan_job(options_).key(1).contains("--add-special-tokens")) << "earlier programs' work is continued";
  EXPECT_TRUE(prepare(options_).text_template.empty());
  EXPECT_EQ(read_data_manifest_text(options_.out).find("text_template"), std::string::npos);
}

TEST_F(Templated, FilesOfTheOtherKindAreNotAdded) {
  prepare(options_);
  options_.add = options_.add_special_tokens = true;
  EXPECT_SAYS(refusal<ConfigError>([&] { prepare(options_); }), "have no tokens around them");
}

TEST_F(Templated, ASpecialTokenInATextIsCountedOrReadAsText) {
  write("t.txt", "a</s>b");
  EXPECT_EQ(prepare(options_).special_token_documents, 1);
  options_.overwrite = options_.split_special_tokens = true;
  const auto manifest = prepare(options_);
  EXPECT_EQ(manifest.special_token_documents, 0);
  EXPECT_TRUE(manifest.split_special_tokens);
  EXPECT_EQ(manifest.tokens, 7);
}

TEST_F(Preparing, AnOrdinaryPieceIsNotTakenForTheEndAndANameIs) {
  auto json = byte_tokenizer_json({"</s>"});
  json["added_tokens"] = {added_token_json(259, "<|endoftext|>")};
  write("t/tokenizer.json", json.dump());
  EXPECT_EQ(find_eos(Tokenizer::load(folder_ / "t"), ""), 259u);
  write("t/tokenizer_config.json", R"({"eos_token": "<end>"})");
  EXPECT_EQ(find_eos(Tokenizer::load(folder_ / "t"), ""), 260u);
}

TEST_F(Preparing, TheEndTokenIsFoundOrAskedFor) {
  const auto tokenizer_with = [](const std::vector<std::string>& added) {
    auto json = byte_tokenizer_json();
    uint32_t id = 256;
    for (const auto& content : added) json["added_tokens"].push_back(added_token_json(id++, content));
    return Tokenizer::parse(json.dump(), "t");
  };
  const auto usual = tokenizer_with({"<pad>", "</s>"});
  EXPECT_EQ(find_eos(usual, ""), 257u);
  EXPECT_EQ(find_eos(usual, "<pad>"), 256u);
  EXPECT_EQ(find_eos(usual, "65"), 65u);
  EXPECT_SAYS(refusal<ConfigError>([&] { find_eos(usual, "258"); }), "--eos 258 is beyond the tokenizer's 258 tokens");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_eos(usual, "99999999999999999999"); }), "is beyond");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_eos(usual, "<x>"); }), "no token \"<x>\"");
  EXPECT_SAYS(refusal<ConfigError>([&] { find_eos(tokenizer_with({}), ""); }), "name one with --eos");
  EXPECT_SAYS(refusal<ConfigError>([&] {
                find_eos(tokenizer_with({"</s>", "<eos>"}), "");
              }),
              "</s> and <eos>: choose the one");
}

TEST_F(Preparing, MemoryIsPlannedForTheWindowsOfZstdAndOneThatDoesNotFitIsNamed) {
  constexpr unsigned char kWindow2GiB = 21 << 3;
  const auto file = write("a.jsonl.zst", zstd_frame(json_row("a document of some length"), kWindow2GiB)).string();
  auto made = options({file});
  made.memory_bytes = uint64_t{512} << 20;
  for (const auto on_error : {OnError::kFail, OnError::kSkip}) {
    made.documents.on_error = on_error;
    EXPECT_SAYS(refusal<ConfigError>([&] { prepare(made); }), "2.00GiB of it for the zstd window of " + file);
  }
  made.memory_bytes = uint64_t{3} << 30;
  EXPECT_EQ(prepare(made).documents, 1);
}

TEST(MemoryBudget, HasFewerThreadsForFilesWithLargeWindows) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const auto threads = [](std::vector<uint64_t> windows) {
    MemoryNeeds needs{.asked = 3 * kGiB, .num_threads = 4, .chunk_bytes = 1 << 19};
    needs.windows.bytes = std::move(windows);
    const auto budget = plan_memory(needs);
    EXPECT_GT(budget.max_document_bytes, 0u);
    return budget.num_threads;
  };
  EXPECT_EQ(threads({}), 4);
  EXPECT_EQ(threads({2 * kGiB}), 4) << "only one file has it";
  EXPECT_EQ(threads({kGiB, kGiB, kGiB, kGiB}), 2);
}

}  // namespace
}  // namespace athanor::prepare_test
