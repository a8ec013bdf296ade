// Tests manifests and headers as large as those of a run on 12,288 ranks, and as hostile as a file can be: time and
// memory grow with the size of the text.

#include "checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/testing/folder_test.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"
#include "checkpoint/testing/large_manifest.h"

namespace athanor::manifest_test {
namespace {

double thread_seconds() {  // time of this thread alone: other work may load the machine
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
double peak_megabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e3;
}

TEST(Manifest, AHundredThousandPiecesComeBackAsTheyWere) {
  const Manifest written = large_manifest(100'000);
  const std::string text = manifest_text(written);
  size_t read_behind = 0;
  const double before = thread_seconds();
  const Manifest read = parse_manifest(text, "m", [&](size_t bytes) { read_behind = bytes; });
  EXPECT_LT(thread_seconds() - before, 20) << "0.2 s where each piece costs the same; quadratic, it took 7 s for a "
                                              "hundred thousand and 30 s for twice as many";
  EXPECT_GT(read_behind, text.size() - (2 << 20));
  ASSERT_EQ(read.pieces.size(), written.pieces.size());
  for (size_t i = 0; i < read.pieces.size(); ++i) {
    const Piece &a = written.pieces[i], &b = read.pieces[i];
    ASSERT_TRUE(a.tensor_name() == b.tensor_name() && a.file_name() == b.file_name() && a.slice() == b.slice() &&
                a.byte_offset == b.byte_offset && a.hash == b.hash)
        << i;
  }
  EXPECT_EQ(manifest_text(read), text);
}

TEST(Manifest, PartsOfAThousandWritersJoinToTheWholeText) {
  Manifest whole;
  const Manifest all = large_manifest(20'000);
  for (size_t begin = 0; begin < all.pieces.size(); begin += 20) {
    Manifest part;
    const auto* file = &*part.files.emplace(fmt::format("pieces-{:05}.safetensors", begin), 1 << 30).first;
    for (size_t i = begin; i < begin + 20; ++i) {
      const Piece& piece = all.pieces[i];
      part.add_piece(part.add_tensor(piece.tensor_name(), piece.tensor->second), file, piece.slice_ref(),
                     piece.byte_offset, piece.hash);
    }
    join_manifests(whole, parse_manifest_part(manifest_text(part), "part"));
  }
  EXPECT_EQ(whole.tensors, all.tensors);
  EXPECT_EQ(whole.files.size(), 1000u);
  const Manifest read = parse_manifest(manifest_text(whole), "m");
  ASSERT_EQ(read.pieces.size(), all.pieces.size());
  for (size_t i = 0; i < read.pieces.size(); ++i) ASSERT_EQ(read.pieces[i].slice(), all.pieces[i].slice());
}

class ManifestFolder : public FolderTest {};

TEST_F(ManifestFolder, OpeningTakesTheMemoryOfItsPiecesAlone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is counted as well";
#endif
  constexpr int64_t kPieces = 100'000;
  if (!in_child_) write_raw(folder_ / kManifestName, manifest_text(large_manifest(kPieces)));
  const auto open_and_tell = [&] {
    // The memory of the fresh process: a piece takes 120 bytes, and 8 in the list of its tensor. Tables, and the part
    // of the text that is mapped at a time, take 32 MB. The text alone has 25 MB, and as a tree of values it took 200.
    const double allowed_mb = peak_megabytes() + 32 + 150e-6 * static_cast<double>(kPieces);
    const auto reader = CheckpointReader::open(folder_);
    std::fprintf(stderr, "peak %.0f MB of %.0f MB allowed\n", peak_megabytes(), allowed_mb);
    std::_Exit(peak_megabytes() < allowed_mb && reader.manifest().pieces.size() == kPieces ? 0 : 1);
  };
  EXPECT_EXIT(open_and_tell(), testing::ExitedWithCode(0), "MB allowed");
}

std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

TEST(HostileHeader, OfTwoMegabytesIsReadOrRefusedInLinearTime) {
  constexpr size_t kBytes = 2'400'000;  // this took 64 s
  const std::string half_open = R"({"t":{"dtype":"F32","data_offsets":[0,0],)";
  const std::vector<std::string> headers = {
      half_open + "\"shape\":[0" + repeated(",0", kBytes) + "]}}",
      half_open + "\"shape\":[[]" + repeated(",[]", kBytes) + "]}}",
      half_open + "\"x\":[0" + repeated(",{}", kBytes) + "]}}",
      R"({"__metadata__":{"a":[0)" + repeated(",0", kBytes) + "]}}",
      R"({"t":[0)" + repeated(",0", kBytes) + "]}",
      "{\"t\":\"" + repeated("\\u0041", kBytes) + "\"}",
      "{\"t\":1" + repeated("0", kBytes) + "}",
  };
  const double before = thread_seconds();
  for (const auto& header : headers) {
    const uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    file += header;
    EXPECT_THROW(SafetensorsFile::parse(std::as_bytes(std::span(file)), "hostile"), CheckpointError);
  }
  std::string many = "{\"a\":{}", object = "{\"a\":0";
  for (int i = 0; many.size() < kBytes; ++i) {
    many += fmt::format(",\"{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i);
    object += fmt::format(",\"{}\":0", i);
  }
  EXPECT_NO_THROW(parse_strict_json(many + "}", "many"));
  EXPECT_NO_THROW(parse_strict_json(object + "}", "object"));
  EXPECT_NO_THROW(parse_strict_json("[0" + repeated(",0", kBytes) + "]", "list"));
  EXPECT_LT(thread_seconds() - before, 20) << "a second where each byte costs the same, many minutes if quadratic";
}

TEST(HostileHeader, AMemberTooManyIsRefused) {
  std::string members;
  for (int i = 0; i < 20; ++i) members += fmt::format(",\"{}\":0", i);
  const std::string header = R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0])" + members + "}}";
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  EXPECT_SAYS(message_of<CheckpointError>([&] { SafetensorsFile::parse(std::as_bytes(std::span(file)), "f"); }),
              "more than 16 members");
}

}  // namespace
}  // namespace athanor::manifest_test
