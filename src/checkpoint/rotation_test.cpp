#include "checkpoint/rotation.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/folder_test.h"
#include "checkpoint/model_identity.h"

namespace athanor::rotation_test {
namespace {

namespace fs = std::filesystem;

class Rotation : public FolderTest {
 protected:
  void save(int64_t step, const RotationOptions& options = {}) {
    const std::vector<float> values(1000, static_cast<float>(step));
    save_rotating(folder_, step, {{"master/w", whole_slice({10, 100}), values.data()}}, {}, {{"step", step}}, options);
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> found;
    for (const auto& each : list_checkpoints(folder_)) found.push_back(each.step);
    return found;
  }
  size_t num_entries() { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  void damage(int64_t step) { damage_byte(folder_ / step_folder_name(step) / "pieces-00000.safetensors", 2000); }
  float value_at(int64_t step) {
    std::vector<float> out(1000);
    CheckpointReader::open(folder_ / step_folder_name(step)).load({{"master/w", whole_slice({10, 100}), out.data()}});
    return out[999];
  }
  std::string full_disk_message(int64_t step, const RotationOptions& options) {
    return message_of<IoError>([&] {
      try {
        save(step, options);
      } catch (const IoError& error) {
        EXPECT_TRUE(error.disk_full());
        throw;
      }
    });
  }
};

using Steps = std::vector<int64_t>;

TEST_F(Rotation, TheTwoNewestAreKept) {
  for (const int64_t step : {5, 500, 1000, 123456789}) save(step);
  EXPECT_EQ(steps(), (Steps{123456789, 1000}));
  EXPECT_EQ(num_entries(), 2u);
}

TEST_F(Rotation, TheNumberThatIsKeptCanBeChosenAndMultiplesOfAStepStay) {
  RotationOptions options;
  options.keep = 1;
  options.keep_every = 200;
  for (const int64_t step : {100, 200, 300, 400, 500, 700}) save(step, options);
  EXPECT_EQ(steps(), (Steps{700, 400, 200}));
  options.keep = 3;
  for (const int64_t step : {800, 900, 1100}) save(step, options);
  EXPECT_EQ(steps(), (Steps{1100, 900, 800, 400, 200}));
}

TEST_F(Rotation, ACheckpointThatStaysIsNotRemovedForRoomEither) {
  RotationOptions options;
  options.keep_every = 100;
  for (const int64_t step : {100, 150}) save(step, options);
  options.free_bytes = [](const fs::path&) { return uint64_t{0}; };
  full_disk_message(160, options);
  EXPECT_EQ(steps(), (Steps{150, 100}));
}

TEST_F(Rotation, OnlyWholeNamesAreCheckpoints) {
  for (const char* name : {"step-00000500.bak", ".step-00000500.tmp", "step-5", "step-0000050x", "model-00000500",
                           "step-99999999999999999999"}) {
    fs::create_directories(folder_ / name);
  }
  write_raw(folder_ / "step-00000700", "a file");
  EXPECT_EQ(steps(), Steps{});
  EXPECT_TRUE(list_checkpoints(folder_ / "missing").empty());
  EXPECT_EQ(step_folder_name(500), "step-00000500");
}

TEST_F(Rotation, ADamagedCheckpointIsPassedOver) {
  save(1);
  save(2);
  EXPECT_EQ(open_newest_verified(folder_)->state()["step"], 2);
  damage(2);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest_verified(folder_)->state()["step"], 1);
  const auto warned = testing::internal::GetCapturedStderr();
  EXPECT_SAYS(warned, "step-00000002/pieces-00000.safetensors: damaged: tensor master/w");
  damage_byte(folder_ / step_folder_name(1) / kManifestName, 100);
  EXPECT_FALSE(open_newest_verified(folder_).has_value());
  EXPECT_EQ(steps(), (Steps{2, 1}));  // damage is no reason to delete anything
}

TEST_F(Rotation, ACheckpointOfANewerFormatIsRefusedAndNoOlderOneIsTaken) {
  save(1);
  save(2);
  const fs::path manifest = folder_ / step_folder_name(2) / kManifestName;
  std::string body = read_file(manifest);
  body = body.substr(body.find('\n') + 1);
  const std::string old = "\"version\": 1";
  body.replace(body.find(old), old.size(), "\"version\": 2");
  fs::remove(manifest);
  write_file_atomically(manifest, "{\"hash\": \"" + hash_hex(body) + "\",\n" + body);
  const std::string refused = message_of<CheckpointError>([&] { open_newest_verified(folder_); });
  EXPECT_SAYS(refused, "version 2 was written by another athanor; this one reads version 1; ");
  EXPECT_SAYS(refused, "or name an older checkpoint of " + folder_.string());
}

TEST_F(Rotation, ACheckpointThatIsPutAsideIsNeitherLoadedNorDeletedAndHasTheReason) {
  for (const int64_t element : {7, 8}) {
    save(1);
    save(2);
    put_aside(folder_ / step_folder_name(2), {"master/w", element, {0, element}, "nan"});
    EXPECT_EQ(steps(), Steps{1});
    EXPECT_EQ(list_recoverable(folder_).size(), 1u);
  }
  clean_leftovers(folder_);
  for (const int64_t step : {3, 4, 5, 6}) save(step);
  EXPECT_EQ(steps(), (Steps{6, 5}));
  EXPECT_EQ(num_entries(), 4u);
  const fs::path first = folder_ / "not-finite-step-00000002", second = folder_ / "not-finite-2-step-00000002";
  const auto reason = nlohmann::json::parse(read_file(first / "not-finite.json"));
  EXPECT_EQ(reason.at("tensor"), "master/w");
  EXPECT_EQ(reason.at("element"), nlohmann::json({0, 7}));
  EXPECT_EQ(reason.at("value"), "nan");
  EXPECT_EQ(nlohmann::json::parse(read_file(second / "not-finite.json")).at("element"), nlohmann::json({0, 8}));
  CheckpointReader::open(first).verify();  // as it was
}

TEST_F(Rotation, ACheckpointThatWasBeingReplacedIsPutAsideUnderItsOwnName) {
  save(1);
  fs::rename(folder_ / step_folder_name(1), folder_ / ".step-00000001.replaced");
  const auto listed = list_recoverable(folder_).at(0).path;
  clean_leftovers(folder_);
  EXPECT_EQ(put_aside(listed, {"master/w", 0, {0, 0}, "inf"}).filename(), "not-finite-step-00000001");
}

TEST_F(Rotation, APeerThatIsGoneSaysNothingOfTheCheckpoint) {
  save(1);
  Team team{.index = 0, .size = 2};
  team.broadcast = [](const std::string& text) { return text; };
  team.gather = [](const std::string&) -> std::vector<std::string> { throw CommError("rank 1 is missing"); };
  EXPECT_THROW(open_newest_verified(folder_, team), CommError);
}

TEST_F(Rotation, ARunThatWentBackLeavesLaterCheckpointsAlone) {
  save(10);
  save(20);
  save(12);
  save(14);
  EXPECT_EQ(steps(), (Steps{20, 14, 12}));
}

TEST_F(Rotation, ACheckpointOfTheSameStepIsReplaced) {
  save(10);
  save(20);
  damage(20);
  save(20);
  EXPECT_EQ(steps(), (Steps{20, 10}));
  EXPECT_EQ(open_newest_verified(folder_)->state()["step"], 20);
  EXPECT_EQ(num_entries(), 2u);
}

TEST_F(Rotation, AProcessKilledWhileItReplacesLosesNothing) {
  if (!in_child_) save(10);
  ::setenv("ATHANOR_FAULT", "folder.before_rename:kill", 1);
  EXPECT_EXIT(save(10), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("ATHANOR_FAULT");
  EXPECT_EQ(steps(), Steps{});
  clean_leftovers(folder_);
  EXPECT_EQ(steps(), Steps{10});
  EXPECT_EQ(value_at(10), 10);
  EXPECT_EQ(num_entries(), 1u);
}

TEST_F(Rotation, AProcessKilledAnywhereLeavesTheNewestWholeOne) {
  for (const char* fault : {"checkpoint.piece:kill", "checkpoint.before_commit:kill", "folder.before_rename:kill",
                            "checkpoint.remove:kill"}) {
    if (!in_child_) save(1);
    if (!in_child_) save(2);
    ::setenv("ATHANOR_FAULT", fault, 1);
    EXPECT_EXIT(save(3), testing::KilledBySignal(SIGKILL), "") << fault;
    if (in_child_) continue;
    ::unsetenv("ATHANOR_FAULT");
    clean_leftovers(folder_);
    const bool committed = std::string(fault) == "checkpoint.remove:kill";
    EXPECT_EQ(steps(), committed ? (Steps{3, 2}) : (Steps{2, 1})) << fault;
    EXPECT_EQ(num_entries(), 2u) << fault;
    EXPECT_EQ(open_newest_verified(folder_)->state()["step"], committed ? 3 : 2);
    for (const auto& each : list_checkpoints(folder_)) fs::remove_all(each.path);
  }
}

TEST_F(Rotation, AFullDiskCostsTheNewCheckpointAlone) {
  save(1);
  save(2);
  RotationOptions full;
  full.free_bytes = [](const fs::path&) { return uint64_t{100}; };
  const auto one_left = [&] {  // the older one is removed, and there is still no room
    return full_disk_message(3, full);
  };
  EXPECT_SAYS(one_left(), "cannot write checkpoint step-00000003");
  EXPECT_EQ(steps(), Steps{2});
  EXPECT_EQ(num_entries(), 1u);
  full_disk_message(3, full);
  EXPECT_EQ(steps(), Steps{2});
}

TEST_F(Rotation, ADiskForTwoLetsTheOlderGoFirstIfTheNewerVerifies) {
  RotationOptions tight;  // there is room only while at most one checkpoint exists
  tight.free_bytes = [this](const fs::path&) { return steps().size() < 2 ? UINT64_MAX : 0; };
  save(1, tight);
  save(2, tight);
  save(3, tight);
  EXPECT_EQ(steps(), (Steps{3, 2}));
  damage(3);
  full_disk_message(4, tight);
  EXPECT_EQ(steps(), (Steps{3, 2}));
  EXPECT_EQ(open_newest_verified(folder_)->state()["step"], 2);
}

TEST_F(Rotation, AnOldCheckpointThatCannotBeDeletedIsNamedAndTheNewOneCounts) {
  if (!in_child_) {
    save(1);
    save(2);
  }
  ::setenv("ATHANOR_FAULT", "checkpoint.hide:eio@1", 1);
  const auto save_and_tell = [&] {
    save(3);  // throws no error
    std::_Exit(steps() == Steps{3, 2, 1} ? 0 : 1);
  };
  EXPECT_EXIT(save_and_tell(), testing::ExitedWithCode(0), "step-00000001: old checkpoints are still there");
  ::unsetenv("ATHANOR_FAULT");
  if (in_child_) return;
  save(4);  // and the next save removes both
  EXPECT_EQ(steps(), (Steps{4, 3}));
}

TEST_F(Rotation, AHiddenCheckpointIsNoneAndLeftoversOfAnEarlierOneOfItsStepAreNoObstacle) {
  save(1);
  fs::create_directories(folder_ / ".step-00000001.tmp/left");
  const auto hidden = hide_checkpoint(folder_ / step_folder_name(1));
  EXPECT_TRUE(list_recoverable(folder_).empty());
  EXPECT_TRUE(fs::exists(hidden / kManifestName));
  clean_leftovers(folder_);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Rotation, ADiskThatFillsUpWhileWritingCostsTheNewOneAlone) {
  if (!in_child_) save(1);
  if (!in_child_) save(2);
  ::setenv("ATHANOR_FAULT", "files.write:enospc@2+", 1);
  const auto save_and_tell = [&] {
    try {
      save(2);
    } catch (const IoError& error) {
      std::_Exit(error.disk_full() ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(save_and_tell(), testing::ExitedWithCode(0), "");
  ::unsetenv("ATHANOR_FAULT");
  EXPECT_EQ(steps(), (Steps{2, 1}));
  EXPECT_EQ(num_entries(), 2u);
}

TEST(ModelIdentity, AnotherModelIsToldFieldByField) {
  ModelConfig model;
  auto stored = model_identity(model);
  check_same_model(stored, model, "run/");
  auto spelt_out = model;  // 0 means the number of query heads
  spelt_out.num_key_value_heads = model.num_attention_heads;
  spelt_out.from = "somewhere";
  check_same_model(stored, spelt_out, "run/");
  auto other = model;
  other.hidden_size = 512;
  other.norm_topk_prob = true;
  const auto message = message_of<CheckpointError>([&] { check_same_model(stored, other, "run/"); });
  EXPECT_SAYS(message, "run/ is of another model");
  EXPECT_SAYS(message, "hidden_size is 256 there, 512 here");
  EXPECT_SAYS(message, "norm_topk_prob is false there, true here");
  stored.erase("vocab_size");
  EXPECT_SAYS(message_of<CheckpointError>([&] { check_same_model(stored, model, "run/"); }), "vocab_size is missing");
}

TEST(ModelIdentity, ACheckpointFromBeforeAFieldWasThereIsOfTheModelWithItsDefault) {
  ModelConfig model;
  auto stored = model_identity(model);
  for (const char* key : {"head_dim", "mlp_only_layers", "rope_scaling.factor"}) ASSERT_EQ(stored.erase(key), 1u);
  check_same_model(stored, model, "run/");
  model.attention_head_dim = model.hidden_size / model.num_attention_heads;  // what 0 means
  check_same_model(stored, model, "run/");
  model.attention_head_dim = 128;
  EXPECT_SAYS(message_of<CheckpointError>([&] { check_same_model(stored, model, "run/"); }), "head_dim is missing");
}

}  // namespace
}  // namespace athanor::rotation_test
