#include <vector>

#include "dataset/npy.h"

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::npy_test {
namespace {

std::string npy(const std::string& dict, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes +=
      {static_cast<char>(version), '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + dict;
}

NpyHeader parse(const std::string& bytes) { return parse_npy_header(bytes, "s.npy"); }
std::string refused(const std::string& bytes) {
  const auto message = refusal<DataError>([&] { parse(bytes); });
  EXPECT_TRUE(message.starts_with("s.npy: ")) << message;
  return message;
}
std::string refused_dict(const std::string& dict) { return refused(npy(dict)); }

TEST(Npy, WhatIsWrittenIsParsed) {
  for (const int item_bytes : {2, 4}) {
    const auto header = parse(npy_header(item_bytes, 1234567890123, 2048));
    EXPECT_EQ(header.item_bytes, item_bytes);
    EXPECT_EQ(header.num_rows, 1234567890123);
    EXPECT_EQ(header.num_cols, 2048);
    EXPECT_EQ(header.data_offset % 64, 0u);
    EXPECT_EQ(header.data_offset, npy_header(item_bytes, 1234567890123, 2048).size());
  }
}

TEST(Npy, AllVersionsQuotesAndOrdersOfKeysAreRead) {
  const std::string dict = "{\"shape\": (3, 5), 'fortran_order':False,'descr': '<u4'}\n";
  for (const int version : {1, 2, 3}) {
    const auto header = parse(npy(dict, version));
    EXPECT_EQ(header.num_rows, 3);
    EXPECT_EQ(header.num_cols, 5);
    EXPECT_EQ(header.data_offset, dict.size() + (version == 1 ? 10 : 12));
  }
}

TEST(Npy, OtherContentsAreRefusedWithTheReason) {
  const auto with_dtype = [](const std::string& descr) {
    return refused_dict("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1, 2), }\n");
  };
  EXPECT_SAYS(with_dtype("|u1"), "dtype |u1 cannot be read, one byte is too small for the ids of a vocabulary");
  EXPECT_SAYS(with_dtype(">u2"), "big-endian");
  EXPECT_SAYS(with_dtype("<f4"), "unsigned integers of 2 or 4 bytes");
  EXPECT_SAYS(refused_dict("{'descr': '<u2', 'fortran_order': True, 'shape': (1, 2), }"), "fortran_order is True");
  EXPECT_SAYS(refused_dict("{'descr': '<u2', 'fortran_order': False, 'shape': (7,), }"), "1 axes; a shard has two");
  EXPECT_SAYS(refused_dict("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (7,), }"),
              "a string is expected");
}

TEST(Npy, ADamagedHeaderIsNamedByByte) {
  EXPECT_SAYS(refused("PK\x03\x04"), "not an .npy file (byte 0");
  EXPECT_SAYS(refused(npy_header(2, 1, 1).substr(0, 9)), "ends at byte 9, inside its header");
  EXPECT_SAYS(refused(npy_header(2, 1, 1).substr(0, 60)), "ends at byte 60, inside its header of 118 bytes");
  EXPECT_SAYS(refused(npy("{}", 4)), "npy version 4.0 at byte 6");
  EXPECT_SAYS(refused_dict("{'descr': '<u2', 'shape': (1, 2), }"), "are needed");
  EXPECT_SAYS(refused_dict("{'descr': '<u2', 'descr': '<u2'}"),
              "at byte 35: descr, fortran_order and shape are expected");
  EXPECT_SAYS(refused_dict("{'descr' '<u2'}"), "at byte 19: ':' is expected");
  EXPECT_SAYS(refused_dict("{'shape': (-1, 2)}"), "at byte 21: a size is expected");
  EXPECT_SAYS(refused_dict("{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2)} x"), "nothing more is expected");
  std::string huge = npy("", 2);
  huge.replace(8, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_SAYS(refused(huge), "npy header of 4294967295 bytes");
}

TEST(Npy, ASizeIsNeverTrusted) {
  const auto with_shape = [](const std::string& shape) {
    return refused_dict("{'descr': '<u4', 'fortran_order': False, 'shape': " + shape + ", }");
  };
  EXPECT_SAYS(with_shape("(99999999999999999999, 1)"), "beyond 2^63");
  EXPECT_SAYS(with_shape("(4611686018427387904, 4)"), "more bytes than a file can");
  EXPECT_SAYS(with_shape("(2305843009213693952, 1)"), "more bytes than a file can");
}

class NpyFile : public FolderTest {};

TEST_F(NpyFile, ATruncatedFileIsNamedByByte) {
  const auto bytes = npy_header(2, 3, 4) + std::string(24, 'x');
  EXPECT_EQ(NpyMatrix::open(write("s.npy", bytes)).num_rows(), 3);
  const auto cut = write("s.npy", bytes.substr(0, bytes.size() - 1));
  EXPECT_SAYS(refusal<DataError>([&] { NpyMatrix::open(cut); }),
              "ends at byte 151, but a shape of [3, 4] of 2 bytes each ends at byte 152; it is cut off");
  const auto longer = write("s.npy", bytes + "y");
  EXPECT_SAYS(refusal<DataError>([&] { NpyMatrix::open(longer); }), "something was appended");
}

TEST_F(NpyFile, RowsLieOneAfterAnother) {
  const auto matrix = NpyMatrix::open(write("s.npy", npy_header(2, 2, 2) + "aabbccdd"));
  std::string row(4, '\0');
  matrix.read_row(1, reinterpret_cast<std::byte*>(row.data()));
  EXPECT_EQ(row, "ccdd");
}

TEST_F(NpyFile, ALongHeaderIsReadToItsEnd) {
  auto header = npy_header(2, 2, 2);
  header.insert(header.size() - 1, std::string(4096, ' '));
  const size_t length = header.size() - 10;
  header[8] = static_cast<char>(length & 0xFF);
  header[9] = static_cast<char>(length >> 8);
  const auto matrix = NpyMatrix::open(write("s.npy", header + "aabbccdd"));
  EXPECT_EQ(matrix.header().data_offset, header.size());
}

TEST_F(NpyFile, AFileThatIsCutOffAfterItWasOpenedIsAnErrorWithItsByte) {
  const auto path = write("s.npy", npy_header(2, 2, 2) + "aabbccdd");
  const auto matrix = NpyMatrix::open(path);
  std::filesystem::resize_file(path, 134);
  std::vector<std::byte> row(4);
  matrix.read_row(0, row.data());
  EXPECT_SAYS(refusal<IoError>([&] { matrix.read_row(1, row.data()); }), "s.npy at byte 132: it ends at byte 134 now");
}

}  // namespace
}  // namespace athanor::npy_test
