// Tests checkpoints whose manifests have the right hash and claim what is impossible, absurd or outside: one line
// refuses each.

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/listing.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/router_rows.h"
#include "checkpoint/team.h"
#include "checkpoint/verification.h"
#include "checkpoint/writer.h"

namespace athanor::hostile_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class HostileCheckpoint : public FolderTest {
 protected:
  fs::path path_ = "unset";
  Json manifest_;

  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "step-00000010";
    const std::vector<float> a(24, 1.5F), b(24, 2.5F);
    write_checkpoint(path_, {{"master/a", whole_slice({4, 6}), a.data()}, {"master/b", whole_slice({4, 6}), b.data()}},
                     {{"hidden_size", 6}}, {{"step", 10}});
    manifest_ = Json::parse(read_file(path_ / kManifestName));
    manifest_.erase("hash");
  }

  /// Writes the manifest as `edit` left it, with the hash that it then has.
  void claim(const std::function<void(Json&)>& edit) {
    Json edited = manifest_;
    edit(edited);
    std::string body;
    for (const char* key : {"format", "version", "athanor", "model", "state", "tensors", "files", "pieces"})
      body += fmt::format("{}\"{}\": {}", body.empty() ? "" : ",\n", key, edited.at(key).dump());
    body += "}\n";
    write_raw(path_ / kManifestName, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
  }
  /// Returns the refusal, after checking that it is a line of no more than 600 bytes.
  std::string refused() {
    auto message = refusal<CheckpointError>([&] { verify_checkpoint(path_, 1); });
    EXPECT_LT(message.size() - path_.string().size(), 600u);
    return message;
  }
  std::string refused(const std::function<void(Json&)>& edit) {
    claim(edit);
    return refused();
  }
  /// Replaces the name of the one file.
  static void rename_file(Json& m, const std::string& name) {
    m["files"] = {{name, m["files"].front()}};
    for (auto& piece : m["pieces"]) piece["file"] = name;
  }
};

TEST_F(HostileCheckpoint, AnEditThatChangesNothingIsAccepted) {
  claim([](Json&) {});
  EXPECT_NO_THROW(verify_checkpoint(path_, 2));
}

TEST_F(HostileCheckpoint, NamesThatPointOutsideAreRefused) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/../x.safetensors", "a/../../x.safetensors",
                           "./x.safetensors", "a/b/c.safetensors", "x.npy", ""})
    EXPECT_SAYS(refused([&](Json& m) { rename_file(m, name); }), "is not the name of a safetensors file") << name;
}

TEST_F(HostileCheckpoint, ALinkOutIsRefusedAndOneThatStaysInsideIsFollowed) {
  const auto file = path_ / "pieces-00000.safetensors", outside = folder_ / "outside.safetensors";
  fs::rename(file, outside);
  fs::create_symlink(outside, file);
  EXPECT_SAYS(refused(), "is a link out of the checkpoint, to " + outside.string());
  fs::remove(file);
  fs::rename(outside, path_ / "kept.safetensors");
  fs::create_symlink("kept.safetensors", file);
  EXPECT_NO_THROW(verify_checkpoint(path_, 1));
  fs::create_directory_symlink(path_, folder_ / "link");
  EXPECT_NO_THROW(verify_checkpoint(folder_ / "link", 1)) << "the checkpoint itself may be on another disk";
}

TEST_F(HostileCheckpoint, AFolderInItThatIsALinkOutIsRefused) {
  fs::create_directories(folder_ / "elsewhere");
  fs::rename(path_ / "pieces-00000.safetensors", folder_ / "elsewhere/pieces-00000.safetensors");
  fs::create_directory_symlink(folder_ / "elsewhere", path_ / "ranks-000");
  EXPECT_SAYS(refused([](Json& m) { rename_file(m, "ranks-000/pieces-00000.safetensors"); }),
              "is a link out of the checkpoint");
}

TEST_F(HostileCheckpoint, ALinkToItselfIsOneLineWithoutWordsOfALibrary) {
  const auto file = path_ / "pieces-00000.safetensors";
  fs::remove(file);
  fs::create_symlink(file, file);
  EXPECT_SAYS(refusal<IoError>([&] { verify_checkpoint(path_, 1); }), "cannot use " + file.string());
  EXPECT_SAYS(refusal<IoError>([&] { Team{}.on_all([&] { static_cast<void>(fs::is_regular_file(file)); }); }),
              "cannot use " + file.string());
}

TEST_F(HostileCheckpoint, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  static constexpr int64_t kMany = int64_t{1} << 30;
  EXPECT_SAYS(refused([](Json& m) {
                m["tensors"]["master/a"] = {kMany, kMany};
              }),
              "hold 24 of its 1152921504606846976 elements");
  EXPECT_SAYS(refused([](Json& m) { m["tensors"]["master/c"] = {kMany, kMany, kMany}; }), "is impossible");
  EXPECT_SAYS(refused([](Json& m) { m["tensors"]["master/c"] = Json(std::vector<int>(100'000, 1)); }),
              "has 100000 dims, a checkpoint's have up to 4");
  EXPECT_SAYS(refused([](Json& m) {
                auto& piece = m["pieces"][0];
                m["tensors"]["master/a"] = {kMany, kMany};
                m["files"].front() = (int64_t{1} << 62) + 10'000;
                piece["extent"] = {kMany, kMany};
                piece["flat_end"] = kMany * kMany;
                m["pieces"][1]["byte_offset"] = 0;
                piece["byte_offset"] = 5'000;
              }),
              "truncated or changed: 4611686018427397904 bytes expected");
  for (const int64_t offset : {int64_t{1} << 62, INT64_MAX, int64_t{100'000}})
    EXPECT_SAYS(refused([&](Json& m) { m["pieces"][0]["byte_offset"] = offset; }), "do not fit into");
  EXPECT_SAYS(refused([](Json& m) { m["pieces"][0]["byte_offset"] = uint64_t{1} << 63; }), "from 0 to 2^63-1");
  EXPECT_SAYS(refused([](Json& m) { m["pieces"][0]["flat_end"] = INT64_MAX; }), "are not a range");
}

TEST_F(HostileCheckpoint, PiecesThatShareBytesAreRefusedWhenTheManifestIsRead) {
  // The elements of both are equal then, and so are their hashes.
  EXPECT_SAYS(refused([](Json& m) {
                m["pieces"][1]["byte_offset"] = m["pieces"][0]["byte_offset"];
                m["pieces"][1]["hash"] = m["pieces"][0]["hash"];
              }),
              "pieces of the tensors master/a and master/b share bytes of pieces-00000.safetensors");
  EXPECT_SAYS(
      refused([](Json& m) { m["pieces"][1]["byte_offset"] = m["pieces"][1]["byte_offset"].get<int64_t>() - 4; }),
      "share bytes");
  EXPECT_SAYS(refused([](Json& m) {  // in the other order
                std::swap(m["pieces"][0], m["pieces"][1]);
                m["pieces"][0]["byte_offset"] = m["pieces"][0]["byte_offset"].get<int64_t>() - 4;
              }),
              "share bytes");
}

TEST_F(HostileCheckpoint, PiecesWithoutElementsCostWhatTheirTextCosts) {
  claim([](Json& m) {
    Json empty = m["pieces"][0];
    empty["flat_end"] = 0;
    empty["hash"] = hash_hex("");
    for (int i = 0; i < 100'000; ++i) m["pieces"].push_back(empty);
  });
  const std::clock_t before = std::clock();
  EXPECT_NO_THROW(verify_checkpoint(path_, 2));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 20)
      << "half a second if each costs the same, minutes if quadratic";
}

TEST_F(HostileCheckpoint, NamesOfAnyLengthAndWithLineBreaksAreOneShortLine) {
  const std::string several = "a\nb\x1b[31m", large(1'000'000, 'x');
  for (const auto& name : {several, large}) {
    EXPECT_SAYS(refused([&](Json& m) { m["tensors"][name] = {0}; }), "is not a name");
    EXPECT_SAYS(refused([&](Json& m) { rename_file(m, name + ".safetensors"); }), "is not a name");
    refused([&](Json& m) { rename_file(m, name); });
    refused([&](Json& m) { m["pieces"][0]["file"] = name; });
    refused([&](Json& m) { m["pieces"][0]["tensor"] = name; });
    refused([&](Json& m) { m["pieces"][0]["hash"] = name; });
    refused([&](Json& m) { m["format"] = name; });
  }
  const auto text = read_file(path_ / kManifestName);
  const std::string body = text.substr(text.find('\n') + 1), twice = "\"a\\nb\": 1, \"a\\nb\": 2,\n" + body;
  write_raw(path_ / kManifestName, "{\"hash\": \"" + hash_hex(twice) + "\",\n" + twice);
  EXPECT_SAYS(refused(), "the key \"a\\nb\" occurs twice");
}

TEST_F(HostileCheckpoint, AnotherVersionNamesItselfAndTheRemedy) {
  EXPECT_SAYS(refused([](Json& m) { m["version"] = 2; }),
              "version 2 was written by another athanor; this one reads version 1; use the program that wrote it");
}

TEST_F(HostileCheckpoint, ValuesOfAnyKindInModelAndStateAreOneShortLine) {
  const Json large = std::vector<int>(100'000, 7);
  EXPECT_LT(message_of<CheckpointError>([&] {
              check_same_model({{"hidden_size", large}}, {}, "c", {});
            }).size(),
            20'000u)
      << "all fields differ, and no value takes more than 80 bytes";
  const auto rows = refusal<CheckpointError>([&] { read_router_rows({{kRouterBias, {{"x"}}}}, kRouterBias, {}, "c"); });
  EXPECT_SAYS(rows, "cannot be read (type must be number, but is string)");
  claim([&](Json& m) {
    m["athanor"] = {{"version", std::string(1'000'000, 'v') + "\n"}, {"commit", 5}};
    m["state"]["tokens_seen"] = "many";
  });
  const auto described = describe_checkpoint(find_checkpoints(path_).at(0)).value();
  EXPECT_LT(described.version.size(), 200u);
  EXPECT_SAYS(described.problem, "tokens_seen");
}

}  // namespace
}  // namespace athanor::hostile_checkpoint_test
