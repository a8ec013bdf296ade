#include "dataset/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"

namespace athanor::inline dataset {
static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they are");

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;              // alignment of the data, as numpy writes it
constexpr size_t kMaxHeaderBytes = 64 * 1024;  // a header of ours has 118
constexpr size_t kFirstRead = 1024;

// Parses the Python literal in the header: {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, size_t first_byte, const std::string& name)
      : text_(text), first_byte_(first_byte), name_(name) {}

  NpyHeader parse() {
    expect('{');
    while (!accept('}')) {
      parse_member();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) complain("nothing more is expected");
    if (!descr_ || !fortran_order_ || !shape_) complain("descr, fortran_order and shape are needed");
    return checked();
  }

 private:
  template <class... Args>
  [[noreturn]] void complain(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("{}: npy header at byte {}: {}", name_, first_byte_ + at_,
                    fmt::vformat(format, fmt::make_format_args(args...)));
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) complain("'{}' is expected", c);
  }

  void parse_member() {
    const auto key = parse_string();
    expect(':');
    if (key == "descr" && !descr_) {
      descr_ = parse_string();
    } else if (key == "fortran_order" && !fortran_order_) {
      fortran_order_ = parse_bool();
    } else if (key == "shape" && !shape_) {
      shape_ = parse_shape();
    } else {
      complain("descr, fortran_order and shape are expected, each once");
    }
  }

  std::string_view parse_string() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') complain("a string is expected (a structured dtype cannot contain token ids)");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) complain("the string does not end");
    const auto value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  bool parse_bool() {
    skip_blanks();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    complain("True or False is expected");
  }

  std::vector<int64_t> parse_shape() {
    std::vector<int64_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(parse_size());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  int64_t parse_size() {
    skip_blanks();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value)) {
        complain("the shape has a number beyond 2^63");
      }
    }
    if (at_ == begin) complain("a size is expected");
    return value;
  }

  NpyHeader checked() const {
    NpyHeader header;
    header.item_bytes = item_bytes_of(*descr_);
    if (*fortran_order_) complain("fortran_order is True: rows would not be contiguous; save it with order='C'");
    if (shape_->size() != 2) complain("{} axes; a shard has two, [instances, seq_len]", shape_->size());
    header.num_rows = shape_->at(0);
    header.num_cols = shape_->at(1);
    int64_t num_bytes = 0;
    if (__builtin_mul_overflow(header.num_rows, header.num_cols, &num_bytes) ||
        __builtin_mul_overflow(num_bytes, int64_t{header.item_bytes}, &num_bytes)) {
      complain("a shape of [{}, {}] has more bytes than a file can", header.num_rows, header.num_cols);
    }
    return header;
  }

  int item_bytes_of(std::string_view descr) const {
    if (descr == "<u2") return 2;
    if (descr == "<u4") return 4;
    const char* reason = descr.starts_with('>') ? "its bytes are in big-endian order"
                         : descr == "|u1"       ? "one byte is too small for the ids of a vocabulary"
                                                : "token ids are unsigned integers of 2 or 4 bytes";
    complain("dtype {:.32} cannot be read, {}; '<u2' or '<u4' is needed", descr, reason);
  }

  std::string_view text_;
  size_t first_byte_, at_ = 0;
  const std::string& name_;
  std::optional<std::string_view> descr_;
  std::optional<bool> fortran_order_;
  std::optional<std::vector<int64_t>> shape_;
};

}  // namespace

namespace {

// Returns the end of the header from the length field of a file of at least 12 bytes.
size_t header_end(std::string_view file) {
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(file[at])); };
  const size_t length = byte(8) | byte(9) << 8;
  return byte(6) == 1 ? 10 + length : 12 + (length | byte(10) << 16 | byte(11) << 24);
}

}  // namespace

std::string npy_header(int item_bytes, int64_t num_rows, int64_t num_cols) {
  ATHANOR_ASSERT(item_bytes == 2 || item_bytes == 4);
  std::string dict =
      fmt::format("{{'descr': '<u{}', 'fortran_order': False, 'shape': ({}, {}), }}", item_bytes, num_rows, num_cols);
  const size_t before = kMagic.size() + 4;
  dict.append((kAlignment - (before + dict.size() + 1) % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

NpyHeader parse_npy_header(std::string_view file, const std::string& name) {
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(file[at])); };
  ATHANOR_CHECK_DATA(file.starts_with(kMagic), "{}: not an .npy file (byte 0: its mark \\x93NUMPY is missing)", name);
  ATHANOR_CHECK_DATA(file.size() >= 12, "{}: an .npy file that ends at byte {}, inside its header; get it again", name,
                     file.size());
  const size_t version = byte(6);
  ATHANOR_CHECK_DATA(version >= 1 && version <= 3 && byte(7) == 0,
                     "{}: npy version {}.{} at byte 6 is unknown; 1.0 to 3.0 are", name, version, byte(7));
  const size_t begin = version == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  ATHANOR_CHECK_DATA(length <= kMaxHeaderBytes, "{}: npy header of {} bytes (byte 8); at most {} make sense", name,
                     length, kMaxHeaderBytes);
  ATHANOR_CHECK_DATA(begin + length <= file.size(),
                     "{}: an .npy file that ends at byte {}, inside its header of {} bytes; get it again", name,
                     file.size(), length);
  auto header = HeaderParser(file.substr(begin, length), begin, name).parse();
  header.data_offset = begin + length;
  return header;
}

void check_npy_size(const NpyHeader& header, uint64_t file_bytes, const std::string& name) {
  const uint64_t end = header.data_offset + static_cast<uint64_t>(header.num_rows) *
                                                static_cast<uint64_t>(header.num_cols) *
                                                static_cast<uint64_t>(header.item_bytes);
  ATHANOR_CHECK_DATA(file_bytes == end,
                     "{}: ends at byte {}, but a shape of [{}, {}] of {} bytes each ends at byte {}; {}", name,
                     file_bytes, header.num_rows, header.num_cols, header.item_bytes, end,
                     file_bytes < end ? "it is cut off, get it again" : "something was appended");
}

NpyMatrix NpyMatrix::open(const std::filesystem::path& file) {
  FileReader reader(file);
  // Shards are opened repeatedly if there are more than may be open: a header of ours is in the first bytes.
  std::string beginning;
  for (const uint64_t wanted : {kFirstRead, 12 + kMaxHeaderBytes}) {
    beginning.resize(std::min<uint64_t>(reader.size(), wanted));
    reader.read_at(0, beginning.data(), beginning.size());
    if (beginning.size() < 12 || header_end(beginning) <= beginning.size()) break;
  }
  const auto header = parse_npy_header(beginning, file.string());
  check_npy_size(header, reader.size(), file.string());
  return {std::move(reader), header};
}

uint64_t NpyMatrix::offset_of(int64_t row) const {
  ATHANOR_ASSERT(row >= 0 && row < header_.num_rows);
  return header_.data_offset + static_cast<uint64_t>(row) * static_cast<uint64_t>(header_.num_cols) *
                                   static_cast<uint64_t>(header_.item_bytes);
}

void NpyMatrix::read_rows(int64_t row, int64_t count, std::byte* out) const {
  ATHANOR_ASSERT(count >= 0 && count <= header_.num_rows - row);
  file_.read_at(offset_of(row), out, static_cast<size_t>(count * header_.num_cols * header_.item_bytes));
}

}  // namespace athanor::inline dataset
