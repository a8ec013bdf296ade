#pragma once
// Helpers for the tests of src/data: a temporary folder, compressed bytes, a byte tokenizer, and prepared data.

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/dataset.h"
#include "data/prepare/prepare.h"
#include "data/tokenizer/test_tokenizer_json.h"

#define EXPECT_SAYS(message, part) EXPECT_NE(std::string(message).find(part), std::string::npos) << (message)

namespace athanor {

inline std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const auto context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

/// Returns the message of the `E` that `action` throws; if it throws none, the test fails and the result is "".
template <class E, class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("athanor_data_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, bytes);
    return path;
  }

  /// Writes a tokenizer whose ids 0-255 are the bytes and whose id 256 is <|endoftext|>.
  std::filesystem::path write_byte_tokenizer() const {
    auto json = byte_tokenizer_json();
    json["added_tokens"].push_back(added_token_json(256, "<|endoftext|>"));
    return write("tokenizer.json", json.dump());
  }

  /// Returns options for the byte tokenizer, which a test may change.
  PrepareOptions options(const std::vector<std::string>& inputs, int64_t seq_len = 8) const {
    PrepareOptions made;
    made.tokenizer = write_byte_tokenizer();
    made.inputs = inputs;
    made.out = folder_ / "out";
    made.seq_len = seq_len;
    made.num_threads = 1;
    return made;
  }

  std::filesystem::path folder_;
};

/// Returns all instances of a split in their order.
inline std::vector<std::vector<int32_t>> rows_of(const std::filesystem::path& folder, const std::string& split) {
  const auto dataset = Dataset::open(folder, split);
  std::vector<std::vector<int32_t>> rows;
  for (int64_t i = 0; i < dataset.num_instances(); ++i) {
    dataset.read(i, rows.emplace_back(static_cast<size_t>(dataset.seq_len())).data());
  }
  return rows;
}

/// Returns the folder of shared data, or empty if there is none.
inline std::filesystem::path shared_data() {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  const auto path = source ? std::filesystem::path(source) / "../shared/data" : std::filesystem::path();
  return std::filesystem::is_directory(path) ? path : std::filesystem::path();
}

}  // namespace athanor
