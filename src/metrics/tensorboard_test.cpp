// tests/interop/test_tensorboard.py shows that TensorBoard reads these files.
#include "metrics/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/testing/file_size_limit.h"
#include "metrics/event_format.h"

namespace athanor::tensorboard_test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string bytes_counting(int from, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(from + i * step);
  return bytes;
}

TEST(TfRecord, Crc32cHasTheValuesOfRfc3720) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(bytes_counting(0, 1)), 0x46DD794Eu);
  EXPECT_EQ(crc32c(bytes_counting(31, -1)), 0x113FDB5Cu);
}

TEST(TfRecord, TheMaskRotatesByFifteenAndAdds) {
  // 0xE3069283 >> 15 = 0x0001C60D, << 17 = 0x25060000; their sum plus 0xA282EAD8.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507C60Du + 0xA282EAD8u);
}

// Returns the payloads of a record file; any error of framing fails the test.
std::vector<std::string> unframe(const std::string& bytes) {
  std::vector<std::string> payloads;
  const auto u32_at = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  };
  for (size_t at = 0; at < bytes.size();) {
    if (bytes.size() - at < 16) {
      ADD_FAILURE() << "a record is cut at byte " << at;
      break;
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    EXPECT_EQ(u32_at(at + 8), masked_crc32c(bytes.substr(at, 8)));
    if (bytes.size() - at - 16 < length) {
      ADD_FAILURE() << "a record of " << length << " bytes is cut at byte " << at;
      break;
    }
    payloads.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(u32_at(at + 12 + length), masked_crc32c(payloads.back()));
    at += 16 + length;
  }
  return payloads;
}

TEST(TfRecord, AFrameIsLengthPayloadAndTwoChecksums) {
  const std::string framed = frame_record("abc") + frame_record("");
  EXPECT_EQ(framed.size(), 16u + 3u + 16u);
  EXPECT_EQ(unframe(framed), (std::vector<std::string>{"abc", ""}));
}

class TensorBoard : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  std::vector<std::string> events(const TensorBoardWriter& writer) { return unframe(read_file(writer.path())); }
  fs::path folder_ = fs::path(testing::TempDir()) / ("athanor_events_" + std::to_string(::getpid())) / "made";
};

// Returns the part of an event after the wall time (a key byte and eight more).
std::string after_wall_time(const std::string& event) {
  EXPECT_EQ(event.at(0), '\x09');
  double wall_time = 0;
  std::memcpy(&wall_time, event.data() + 1, 8);
  EXPECT_NEAR(wall_time, static_cast<double>(std::time(nullptr)), 60);
  return event.substr(9);
}

TEST_F(TensorBoard, AFileBeginsWithItsVersionAndTheStepThatSupersedes) {
  const TensorBoardWriter writer(folder_, 300);
  const auto found = events(writer);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(after_wall_time(found[0]),
            "\x10\x00\x1A\x0D"
            "brain.Event:2"s);
  EXPECT_EQ(after_wall_time(found[1]), "\x10\xAC\x02\x3A\x02\x08\x01");  // step 300; session log: status START
}

TEST_F(TensorBoard, AScalarIsTagAndFloatInASummary) {
  TensorBoardWriter writer(folder_, 1);
  writer.scalar("loss/x", 1.5, 7);
  const auto found = events(writer);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(after_wall_time(found[2]), "\x10\x07\x2A\x0F\x0A\x0D\x0A\x06loss/x\x15\x00\x00\xC0\x3F"s);
}

TEST_F(TensorBoard, FilesOfOneSecondSortInTheOrderTheyWereBegun) {
  std::vector<std::string> begun;
  std::set<std::string> sorted;
  for (int i = 0; i < 3; ++i) {
    begun.push_back(TensorBoardWriter(folder_, 1).path().filename().string());
    sorted.insert(begun.back());
  }
  EXPECT_EQ(begun, std::vector<std::string>(sorted.begin(), sorted.end()));
}

TEST_F(TensorBoard, TagsComeInGroupsAndThoseOfRoutersAndDevicesOnlyWhereThereAreSome) {
  TensorBoardWriter writer(folder_, 1);
  StepMetrics dense;
  dense.step = 1;
  write_step(writer, dense);
  StepMetrics routed = dense;
  routed.routers = {{1.5, 1.25, 0, 0, 0, 3}, {2.5, 2.25, 4, 0.5, 0.125, 2.5}};
  routed.validation_loss = 3;
  routed.device_memory = {.in_use_bytes = 5, .peak_in_use_bytes = 7, .held_bytes = 9};
  write_step(writer, routed);
  const auto found = events(writer);
  ASSERT_EQ(found.size(), 4u);
  for (const char* tag : {"loss/train", "optimizer/lr", "throughput/tflops", "time/backward_s", "memory/peak_gib"}) {
    EXPECT_NE(found[2].find(tag), std::string::npos) << tag;
    EXPECT_NE(found[3].find(tag), std::string::npos) << tag;
  }
  for (const char* tag :
       {"loss/validation", "loss/aux", "router/entropy", "router/load_max_over_mean_layer_01",
        "router/load_p95_over_mean_layer_00", "router/dead_experts_layer_01", "router/reassigned_share_layer_01",
        "router/dropped_share_layer_01", "router/entropy_layer_00", "memory/device_now_gib", "memory/device_peak_gib",
        "memory/device_held_gib"}) {
    EXPECT_EQ(found[2].find(tag), std::string::npos) << tag;
    EXPECT_NE(found[3].find(tag), std::string::npos) << tag;
  }
}

TEST_F(TensorBoard, AFolderThatCannotBeMadeIsAnIoErrorWithItsName) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  try {
    const TensorBoardWriter writer(folder_, 1);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find(folder_.string()), std::string::npos) << error.what();
  }
}

TEST_F(TensorBoard, AFileThatCouldNotBeBegunIsNotThere) {
  {
    const FileSizeLimit limit(20);
    EXPECT_THROW(TensorBoardWriter(folder_, 1), IoError);
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace athanor::tensorboard_test
