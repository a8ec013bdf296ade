#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "base/testing/folder_test.h"

namespace athanor::safetensors_test {
namespace {

class Safetensors : public FolderTest {};

std::string file_of(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + data;
}

SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile::parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "m.safetensors");
}

std::string refusal(const std::string& bytes) {
  return message_of<CheckpointError>([&] { parse(bytes); });
}

std::string refusal_of_json(const std::string& json, const std::string& data = std::string(16, 'x')) {
  return refusal(file_of(json, data));
}

constexpr const char* kTwoTensors =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[2,4],"data_offsets":[8,16]}})";

TEST_F(Safetensors, WhatIsWrittenIsReadBackWithShapesMetadataAndBits) {
  const std::vector<float> values{1.5F, -0.0F, std::numeric_limits<float>::infinity(), 3e-39F, 1e30F, 7};
  const std::vector<int64_t> ids{-1, 1LL << 40};
  {
    SafetensorsWriter writer(folder_ / "m.safetensors",
                             {{"w", Dtype::kF32, {2, 3}},
                              {"ids", Dtype::kI64, {2}},
                              {"scalar", Dtype::kF32, {}},
                              {"none", Dtype::kF32, {0, 5}}},
                             {{"format", "pt"}});
    EXPECT_EQ(writer.position() % 8, 0u);
    writer.append(values.data(), 4);
    writer.append(values.data() + 1, 20);
    writer.append(ids.data(), 16);
    writer.append(values.data(), 4);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "m.safetensors"));
    writer.commit();
  }
  const auto file = SafetensorsFile::open(folder_ / "m.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.entry("w").shape, (Shape{2, 3}));
  EXPECT_EQ(file.entry("scalar").num_elements, 1);
  EXPECT_EQ(file.entry("none").num_elements, 0);
  std::vector<float> read(6);
  file.read_floats("w", 0, read);
  EXPECT_EQ(std::memcmp(read.data(), values.data(), 24), 0);
  std::vector<float> part(2);
  file.read_floats("w", 3, part);
  EXPECT_EQ(part[1], 1e30F);
  EXPECT_EQ(std::memcmp(file.data("ids").data(), ids.data(), 16), 0);
  EXPECT_SAYS(message_of<CheckpointError>([&] { file.read_floats("w", 5, part); }), "has 6 elements");
  EXPECT_SAYS(message_of<CheckpointError>([&] { file.read_floats("ids", 0, part); }), "\"ids\" is I64");
  EXPECT_SAYS(message_of<CheckpointError>([&] { file.data("wrong"); }), "no tensor \"wrong\"");
}

TEST_F(Safetensors, NarrowingToBf16RoundsToNearestAcrossChunks) {
  std::vector<float> values((1 << 19) + 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 3;
  {
    SafetensorsWriter writer(folder_ / "m", {{"w", Dtype::kBF16, {static_cast<int64_t>(values.size())}}});
    writer.append_floats(Dtype::kBF16, values);
    writer.commit();
  }
  const auto file = SafetensorsFile::open(folder_ / "m");
  std::vector<float> read(values.size());
  file.read_floats("w", 0, read);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(read[i], bf16_to_float(bf16_from_float(values[i]))) << i;
}

TEST_F(Safetensors, AnUnfinishedFileLeavesNothing) {
  {
    SafetensorsWriter writer(folder_ / "m", {{"w", Dtype::kF32, {4}}});
    writer.append("12345678", 8);
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Safetensors, TheWriterRefusesTwoTensorsOfOneName) {
  EXPECT_SAYS(message_of<CheckpointError>([&] {
                safetensors_header({{"w", Dtype::kF32, {1}}, {"w", Dtype::kF32, {1}}}, {});
              }),
              "\"w\"");
  EXPECT_THROW(safetensors_header({{"w", Dtype::kF32, {1LL << 40, 1LL << 40}}}, {}), CheckpointError);
}

TEST_F(Safetensors, DataAtAnOddByteIsReadRight) {
  // The format does not promise alignment, and the reference library reads such files.
  float value = 0.1F;
  std::string data = "x" + std::string(reinterpret_cast<const char*>(&value), 4);
  const auto bytes = file_of(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[],"data_offsets":[1,5]}})",
      data);
  std::vector<float> read(1);
  parse(bytes).read_floats("b", 0, read);
  EXPECT_EQ(read[0], value);
}

TEST_F(Safetensors, ATruncatedFileSaysHowLongItShouldBe) {
  const auto whole = file_of(kTwoTensors, std::string(16, 'x'));
  ASSERT_EQ(parse(whole).tensors().size(), 2u);
  EXPECT_SAYS(refusal(whole.substr(0, 5)), "5 bytes are too few");
  EXPECT_SAYS(refusal(whole.substr(0, 20)), "truncated: the header needs " + std::to_string(whole.size() - 16));
  const auto cut = refusal(whole.substr(0, whole.size() - 3));
  EXPECT_SAYS(cut, "tensor \"b\": ends at byte " + std::to_string(whole.size()));
  EXPECT_SAYS(cut, "the file has " + std::to_string(whole.size() - 3));
  EXPECT_SAYS(refusal(""), "0 bytes");
}

TEST_F(Safetensors, EveryPrefixOfAFileIsRefused) {
  const auto whole = file_of(kTwoTensors, std::string(16, 'x'));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse(whole.substr(0, size)), CheckpointError) << size;
  }
}

TEST_F(Safetensors, AnAbsurdHeaderLengthIsRefusedBeforeItIsUsed) {
  std::string bytes(64, '\xFF');
  EXPECT_SAYS(refusal(bytes), "not a safetensors file");
}

TEST_F(Safetensors, DamagedJsonIsNamedByByte) {
  EXPECT_SAYS(refusal_of_json(R"({"a":{"dtype":"F32",,)"), "not valid JSON at byte 28");
  EXPECT_SAYS(refusal_of_json("[1]"), "byte 8 must be '{'");
  EXPECT_SAYS(refusal_of_json(R"({"a":1})"), "tensor \"a\": expected an object");
  EXPECT_SAYS(refusal_of_json("{" + std::string(100, '[')), "not valid JSON");
  EXPECT_SAYS(refusal_of_json("{\"a\":" + std::string(100, '[') + "1" + std::string(100, ']') + "}"), "nested deeper");
}

TEST_F(Safetensors, ATensorThatStandsTwiceIsRefused) {
  EXPECT_SAYS(refusal_of_json(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                                  "a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
              "\"a\" occurs twice");
}

TEST_F(Safetensors, WrongDtypesShapesAndOffsetsAreNamedWithTheTensor) {
  const auto with = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return refusal_of_json("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
                           "}}");
  };
  EXPECT_SAYS(with("\"F31\"", "[4]", "[0,16]"), "unknown dtype \"F31\"");
  EXPECT_SAYS(with("7", "[4]", "[0,16]"), "\"dtype\" must be a string");
  EXPECT_SAYS(with("\"F32\"", "[-4]", "[0,16]"), "\"shape\" must hold whole numbers");
  EXPECT_SAYS(with("\"F32\"", "[4.0]", "[0,16]"), "\"shape\" must hold whole numbers");
  EXPECT_SAYS(with("\"F32\"", "[5]", "[0,16]"), "need 20 bytes, data_offsets hold 16");
  EXPECT_SAYS(with("\"F32\"", "[4294967296,4294967296]", "[0,16]"), "more elements than can be counted");
  EXPECT_SAYS(with("\"F64\"", "[2305843009213693953]", "[0,8]"), "more elements than can be counted");
  EXPECT_SAYS(with("\"F32\"", "[4]", "[16,0]"), "begin <= end");
  EXPECT_SAYS(with("\"F32\"", "[4]", "[0]"), "begin <= end");
  EXPECT_SAYS(with("\"F32\"", "[4]", "[0,99999999999999999999]"), "whole numbers");
  EXPECT_SAYS(with("\"F32\"", "[4]", "[9223372036854775791,9223372036854775807]"), "truncated");
  EXPECT_SAYS(refusal_of_json(R"({"t":{"dtype":"F32","shape":[4]}})"), "\"data_offsets\" is missing");
  EXPECT_SAYS(refusal_of_json(R"({"__metadata__":{"a":1}})"), "__metadata__ \"a\"");
}

TEST_F(Safetensors, HolesOverlapsAndTrailingBytesAreRefused) {
  const auto two = [](const std::string& a, const std::string& b) {
    return refusal_of_json(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":)" + a +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}");
  };
  EXPECT_SAYS(two("[0,8]", "[12,16]"), "before tensor \"b\" belong to no tensor");
  EXPECT_SAYS(two("[4,12]", "[12,16]"), "before tensor \"a\" belong to no tensor");
  EXPECT_SAYS(two("[0,8]", "[6,10]"), "overlaps");
  EXPECT_SAYS(two("[0,8]", "[8,12]"), "bytes after the last tensor");
  EXPECT_SAYS(refusal_of_json("{}"), "bytes after the last tensor");
}

TEST_F(Safetensors, AMissingFileIsNamedAndAFolderIsNoFile) {
  EXPECT_SAYS(message_of<IoError>([&] { SafetensorsFile::open(folder_ / "no.safetensors"); }), "no.safetensors");
  EXPECT_THROW(SafetensorsFile::open(folder_), IoError);
}

TEST(Dtype, EveryHalfPrecisionNumberWidensToItsValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float widened = f16_to_float(static_cast<uint16_t>(bits));
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(widened), fraction != 0);
      EXPECT_EQ(std::isinf(widened), fraction == 0);
      EXPECT_EQ(std::signbit(widened), sign < 0);
      continue;
    }
    const double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(widened, sign * value) << bits;
    ASSERT_EQ(std::signbit(widened), sign < 0) << bits;
  }
}

}  // namespace
}  // namespace athanor::safetensors_test
