#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "prepare/prepare.h"
#include "prepare/testing/data_test.h"

namespace athanor::prepare_add_test {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::vector<int32_t>>;

class Adding : public DataTest {
 protected:
  // Makes a first part of two files, with 16 tokens in an instance.
  void SetUp() override {
    DataTest::SetUp();
    options_ = options({write_text("a", 1000), write_text("b", 700)}, 16);
    options_.validation_fraction = 0.1;
    options_.shard_bytes = 1000;
    first_ = prepare(options_);
  }
  std::string write_text(const std::string& name, size_t length) {
    std::string text;
    for (size_t i = 0; text.size() < length; ++i) text += name + std::to_string(i) + " ";
    text.resize(length);
    for (const char c : text) stream_.push_back(static_cast<unsigned char>(c));
    stream_.push_back(256);
    return write(name + ".txt", text).string();
  }
  PrepareOptions adding(const std::vector<std::string>& inputs) const {
    PrepareOptions made;
    made.inputs = inputs;
    made.out = options_.out;
    made.add = true;
    made.num_threads = 1;
    return made;
  }
  std::map<std::string, std::string> hashes() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(options_.out)) {
      all[entry.path().filename().string()] = hash_file(entry.path());
    }
    return all;
  }
  // Expects that all instances are those of the one long stream of all parts, each once.
  void expect_the_stream(const DataManifest& manifest) const {
    Rows rows = rows_of(options_.out, "train"), expected;
    const Rows validation = rows_of(options_.out, "validation");
    rows.insert(rows.end(), validation.begin(), validation.end());
    for (size_t at = 0; at + 16 <= stream_.size(); at += 16) {
      expected.emplace_back(stream_.begin() + static_cast<long>(at), stream_.begin() + static_cast<long>(at + 16));
    }
    std::sort(rows.begin(), rows.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(manifest.tokens, static_cast<int64_t>(stream_.size()));
    EXPECT_EQ(manifest.remainder_tokens, static_cast<int64_t>(stream_.size() % 16));
  }

  std::vector<int32_t> stream_;
  PrepareOptions options_;
  DataManifest first_;
};

TEST_F(Adding, GoesOnWithTheStreamAndLeavesWhatIsThere) {
  const auto before = hashes();
  EXPECT_GT(first_.remainder_tokens, 0);
  const auto manifest = prepare(adding({write_text("c", 900), write_text("d", 333)}));
  expect_the_stream(manifest);
  const auto after = hashes();
  for (const auto& [file, hash] : before) {
    if (file.ends_with(".npy") && !file.starts_with("remainder")) {
      EXPECT_EQ(after.at(file), hash) << file;
    }
  }
  EXPECT_EQ(manifest.inputs.size(), 4u);
  ASSERT_EQ(manifest.parts.size(), 2u);
  EXPECT_EQ(manifest.parts[1].documents, 2);
  EXPECT_EQ(manifest.parts[1].tokens, 900 + 333 + 2);
  EXPECT_EQ(manifest.parts[0].instances, first_.parts[0].instances);
  EXPECT_EQ(manifest.splits.at("train").instances,
            manifest.parts[0].instances.at("train") + manifest.parts[1].instances.at("train"));
  EXPECT_FALSE(fs::exists(options_.out / "remainder-00000.npy"));
  EXPECT_FALSE(fs::exists(folder_ / "out.partial"));
  Dataset::open(options_.out, "train").verify();
  Dataset::open(options_.out, "validation").verify();
  EXPECT_EQ(data_manifest_text(read_data_manifest(options_.out)), data_manifest_text(manifest));
}

TEST_F(Adding, ManyTimesLosesNoTokenAndKeepsTheShareOfValidation) {
  DataManifest manifest;
  for (int i = 0; i < 30; ++i)
    manifest = prepare(adding({write_text("e" + std::to_string(i), 7 + 20 * static_cast<size_t>(i))}));
  expect_the_stream(manifest);
  const auto validation = manifest.splits.at("validation").instances;
  const auto all = validation + manifest.splits.at("train").instances;
  EXPECT_EQ(validation, num_validation_instances(all, 0.1));
  EXPECT_EQ(manifest.parts.size(), 31u);
}

TEST_F(Adding, TheSameFilesAgainChangesNothing) {
  const auto before = hashes();
  auto again = adding(options_.inputs);
  prepare(again);
  EXPECT_EQ(hashes(), before);
  again.inputs.push_back(write_text("c", 100));
  EXPECT_EQ(prepare(again).inputs.size(), 3u) << "only what is new";
  fs::copy(folder_ / "a.txt", folder_ / "copy.txt");
  again.inputs = {(folder_ / "copy.txt").string()};
  EXPECT_EQ(prepare(again).inputs.size(), 3u) << "the same content under another name";
}

TEST_F(Adding, AFileThatHasChangedSinceIsRefused) {
  const auto before = hashes();
  write("a.txt", "other");
  EXPECT_SAYS(refusal<DataError>([&] { prepare(adding(options_.inputs)); }), "a.txt is in");
  EXPECT_EQ(hashes(), before);
}

TEST_F(Adding, OptionsMustAgreeWithTheFolder) {
  const auto input = write_text("c", 100);
  const auto refused = [&](auto change) {
    auto made = adding({input});
    change(made);
    return refusal<ConfigError>([&] { prepare(made); });
  };
  EXPECT_SAYS(refused([](auto& o) { o.seq_len = 32; }), "--seq-len 32, but");
  EXPECT_SAYS(refused([](auto& o) { o.seq_len = 32; }), "was prepared with 16; leave --seq-len out");
  EXPECT_SAYS(refused([](auto& o) { o.seed = 5; }), "--seed 5, but");
  EXPECT_SAYS(refused([](auto& o) { o.eos = "65"; }), "--eos 65, but");
  EXPECT_SAYS(refused([](auto& o) { o.validation_fraction = 0.5; }), "--validation-fraction 0.5, but");
  EXPECT_SAYS(refused([](auto& o) { o.overwrite = true; }), "give one");
  EXPECT_SAYS(refused([&](auto& o) { o.tokenizer = write("t.json", byte_tokenizer_json().dump()); }), "--tokenizer ");
  auto made = adding({input});
  made.seq_len = 16;
  made.seed = 1;
  made.tokenizer = options_.tokenizer;
  made.validation_fraction = 0.1;
  expect_the_stream(prepare(made));
}

TEST_F(Adding, AFolderThatIsDamagedOrOldIsRefused) {
  const auto input = write_text("c", 100);
  const auto refused = [&] { return refusal<DataError>([&] { prepare(adding({input})); }); };
  auto old = first_;
  old.version = 1;
  const auto text = read_file(options_.out / kDataManifestName);
  write("out/manifest.json", data_manifest_text(old));
  EXPECT_SAYS(refused(), "prepared by an older version");
  write("out/manifest.json", text);
  const auto shard = read_file(options_.out / "train-00001.npy");
  write("out/train-00001.npy", shard + "x");
  EXPECT_SAYS(refused(), "train-00001.npy has");
  fs::remove(options_.out / "train-00001.npy");
  EXPECT_SAYS(refused(), "train-00001.npy is missing");
  write("out/train-00001.npy", shard);
  const auto remainder = first_.remainder->file;
  const auto bytes = read_file(options_.out / remainder);
  write("out/" + remainder, bytes + "x");
  EXPECT_SAYS(refused(), "damaged");
  write("out/" + remainder, bytes);
  expect_the_stream(prepare(adding({input})));
  auto nowhere = adding({input});
  nowhere.out = folder_ / "nothing";
  EXPECT_SAYS(refusal<DataError>([&] { prepare(nowhere); }), "does not exist");
  EXPECT_FALSE(fs::exists(folder_ / "nothing.partial"));
}

TEST_F(Adding, ABadFileLeavesTheFolderAsItWas) {
  const auto before = hashes();
  const auto good = write_text("c", 500);
  EXPECT_THROW(prepare(adding({good, write("d.txt", "\xFF").string()})), DataError);
  EXPECT_EQ(hashes(), before);
  expect_the_stream(prepare(adding({good})));
}

}  // namespace
}  // namespace athanor::prepare_add_test
