#include "documents/records.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "documents/attribute_records.h"
#include "documents/other_content.h"
#include "documents/parquet_records.h"
#include "documents/standard_input.h"

namespace athanor::inline documents {
namespace {

// Finds the end of a JSON value without parsing it, by brackets and strings alone. Feed it the bytes of a value one
// after another. A value that begins with a bracket ends when balanced() is true again.
class JsonCutter {
 public:
  void feed(char byte) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == '"') {
        in_string_ = false;
      }
      return;
    }
    if (byte == '"') in_string_ = true;
    if (byte == '{' || byte == '[') ++depth_;
    if (byte == '}' || byte == ']') --depth_;
  }
  bool in_string() const { return in_string_; }
  // True if no bracket and no string is open.
  bool balanced() const { return depth_ <= 0 && !in_string_; }

 private:
  long depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

constexpr size_t kRecordBytes = size_t{1} << 16;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return is_blank(c); });
}

// The decompressed bytes with a look-ahead of one byte; counts lines.
class Bytes {
 public:
  explicit Bytes(std::unique_ptr<ByteSource> source) : source_(std::move(source)), buffer_(kRecordBytes, '\0') {}

  // Returns -1 at the end.
  int peek() { return available() ? static_cast<unsigned char>(buffer_[at_]) : -1; }
  void take() {
    if (buffer_[at_] == '\n') {
      ++line_;
      byte_in_line_ = 0;
    } else {
      ++byte_in_line_;
    }
    ++at_;
  }
  void skip_blanks() {
    while (available() && is_blank(buffer_[at_])) take();
  }
  // Appends the text before the next newline, which is taken too; returns false if `out` would become longer than
  // `limit`.
  bool take_line(std::string& out, uint64_t limit) {
    while (available()) {
      const char* begin = buffer_.data() + at_;
      const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', filled_ - at_));
      const size_t length = newline ? static_cast<size_t>(newline - begin) : filled_ - at_;
      if (out.size() + length > limit) return false;
      out.append(begin, length);
      at_ += length;
      byte_in_line_ += length;
      if (newline) {
        take();
        break;
      }
    }
    return true;
  }
  bool take_all(std::string& out, uint64_t limit) {
    for (; available(); at_ = filled_) {
      if (out.size() + (filled_ - at_) > limit) return false;
      out.append(buffer_.data() + at_, filled_ - at_);
    }
    return true;
  }
  // Puts back `text`, which was taken from line `line` on and began at byte 0, so that it is read once more.
  void put_back(const std::string& text, uint64_t line) {
    buffer_ = text + buffer_.substr(at_, filled_ - at_);
    filled_ = buffer_.size();
    at_ = 0;
    line_ = line;
    byte_in_line_ = 0;
  }
  void skip_byte_order_mark() {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";
    if (available() && std::string_view(buffer_.data(), filled_).starts_with(kMark)) at_ += kMark.size();
  }

  // Returns bytes that follow; none at the end.
  std::string_view following() {
    return available() ? std::string_view(buffer_).substr(at_, filled_ - at_) : std::string_view();
  }

  uint64_t line() const { return line_; }
  uint64_t byte_in_line() const { return byte_in_line_; }
  uint64_t file_position() const { return source_->file_position(); }

 private:
  bool available() {
    if (at_ < filled_) return true;
    at_ = filled_ = 0;
    buffer_.resize(std::max(buffer_.size(), kRecordBytes));
    filled_ = source_->read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t at_ = 0, filled_ = 0;
  uint64_t line_ = 1, byte_in_line_ = 0;
};

// How records follow each other in a file. kUnknownJson: the beginning of the file decides.
enum class Layout { kWhole, kLines, kUnknownJson, kArray, kValues };

// Records of text files and JSON files.
struct CutRecords : public RecordSource {
  CutRecords(const std::filesystem::path& path, const InputFormat& format, uint64_t max_zstd_window, uint64_t max_bytes)
      : file(shown_name(path)), file_format(format), max_record_bytes(max_bytes) {
    bytes.emplace(open_bytes(path, format, max_zstd_window));
    layout = format.kind == InputKind::kText        ? Layout::kWhole
             : format.kind == InputKind::kJsonLines ? Layout::kLines
                                                    : Layout::kUnknownJson;
  }

  uint64_t file_position() const override { return bytes->file_position(); }

  template <class... Args>
  [[noreturn]] void complain(const char* cause, uint64_t line, fmt::format_string<Args...> format, Args&&... args) {
    throw DocumentError(cause,
                        fmt::format("{}:{}: {}", file, line, fmt::vformat(format, fmt::make_format_args(args...))));
  }
  [[noreturn]] void complain_of_size(uint64_t line) {
    complain(kTooLarge, line, "a document of more than {}; split it",
             format_bytes(static_cast<double>(max_record_bytes)));
  }

  bool next(Record& record) override {
    record.is_json = layout != Layout::kWhole;
    if (!started) {
      started = true;
      check_document_content(bytes->following(), file, file_format);
      bytes->skip_byte_order_mark();
      if (bytes->peek() < 0)
        throw DocumentError(kNoDocuments,
                            file + " is empty; leave it out, or pass over such files with --on-error skip");
      if (layout == Layout::kUnknownJson) look_at_json();
    }
    const bool found = read(record);
    if (!found && !any) throw DocumentError(kNoDocuments, file + " holds no documents");
    any |= found;
    return found;
  }

  bool read(Record& record) {
    switch (layout) {
      case Layout::kWhole: return read_whole(record);
      case Layout::kLines: return read_line(record);
      case Layout::kArray: return read_element(record);
      case Layout::kValues: return read_value(record);
      case Layout::kUnknownJson: break;
    }
    ATHANOR_ASSERT(false);
  }

  // An opening bracket means an array. An object that ends in its line, or whose line is followed by one that starts
  // another object, means lines. Any other object extends over several lines.
  void look_at_json() {
    bytes->skip_blanks();
    if (bytes->peek() == '[') {
      bytes->take();
      layout = Layout::kArray;
      return;
    }
    const uint64_t first_line = bytes->line();
    std::string text(bytes->byte_in_line(), ' '), line;
    if (!bytes->take_line(line, max_record_bytes)) complain_of_size(first_line);
    JsonCutter cutter;
    for (const char c : line) cutter.feed(c);
    layout = cutter.balanced() || bytes->peek() == '{' ? Layout::kLines : Layout::kValues;
    bytes->put_back(text + line + "\n", first_line);
  }

  bool read_whole(Record& record) {
    if (any) return false;
    if (!bytes->take_all(record.bytes, max_record_bytes)) complain_of_size(1);
    return true;
  }

  void start_record(Record& record) {
    record.line = bytes->line();
    record.byte_in_line = bytes->byte_in_line();
  }

  bool read_line(Record& record) {
    while (bytes->peek() >= 0) {
      start_record(record);
      record.bytes.clear();
      if (!bytes->take_line(record.bytes, max_record_bytes)) complain_of_size(record.line);
      if (!is_blank(record.bytes)) return true;
    }
    return false;
  }

  // Takes bytes while `more(byte, cutter)`. A newline inside a string is not JSON: the record ends there and is
  // refused, so that it does not take the rest of the file.
  template <class More>
  void cut(Record& record, More more) {
    JsonCutter cutter;
    for (int c = bytes->peek(); c >= 0; c = bytes->peek()) {
      if (!more(static_cast<char>(c), cutter) || (c == '\n' && cutter.in_string())) return;
      cutter.feed(static_cast<char>(c));
      record.bytes.push_back(static_cast<char>(c));
      if (record.bytes.size() > max_record_bytes) complain_of_size(record.line);
      bytes->take();
    }
  }

  bool read_element(Record& record) {
    bytes->skip_blanks();
    start_record(record);
    record.in_array = true;
    if (array_ended || (!any && bytes->peek() == ']')) {
      if (!array_ended) bytes->take();
      bytes->skip_blanks();
      if (bytes->peek() >= 0) complain(kInvalidJson, bytes->line(), "text after the end of the JSON array");
      return false;
    }
    cut(record, [](char c, const JsonCutter& cutter) { return !(cutter.balanced() && (c == ',' || c == ']')); });
    const int end = bytes->peek();
    if (end < 0) {
      complain(kCutOffJson, bytes->line(), "the file ends inside its JSON array, in what starts at line {}",
               record.line);
    }
    bytes->take();
    array_ended = end == ']';
    return true;
  }

  bool read_value(Record& record) {
    bytes->skip_blanks();
    if (bytes->peek() < 0) return false;
    start_record(record);
    cut(record, [&](char c, const JsonCutter& cutter) {
      // A record that opens no bracket extends to the end of its line.
      return record.bytes.empty() || !cutter.balanced() || (record.bytes.back() != '}' && c != '\n');
    });
    return true;
  }

  std::string file;
  InputFormat file_format;
  uint64_t max_record_bytes;
  std::optional<Bytes> bytes;
  Layout layout = Layout::kWhole;
  bool started = false, any = false, array_ended = false;
};

std::unique_ptr<RecordSource> open_records(const std::filesystem::path& file, const DocumentOptions& options,
                                           uint64_t max_record_bytes) {
  const auto format = is_standard_input(file) ? options.standard_input : input_format(file);
  ATHANOR_CHECK_DATA(format, "{}: unknown kind of file", shown_name(file));
  if (format->kind == InputKind::kParquet) return open_parquet_records(file, options, max_record_bytes);
  return std::make_unique<CutRecords>(file, *format, options.max_zstd_window, max_record_bytes);
}

}  // namespace

RecordReader::RecordReader(const std::filesystem::path& file, const DocumentOptions& options, uint64_t max_record_bytes)
    : source_(open_records(file, options, max_record_bytes)) {
  source_ = with_attributes(std::move(source_), file, options, max_record_bytes);
}

bool RecordReader::next(Record& record) {
  if (over_) return false;
  try {
    record = Record();
    over_ = !source_->next(record);
  } catch (...) {
    over_ = true;
    throw;
  }
  return !over_;
}

void check_compression(const std::filesystem::path& file) {
  const auto format = input_format(file);  // none of standard input, which cannot be read again
  if (!format || format->compression == Compression::kNone) return;
  std::vector<char> buffer(kRecordBytes);
  const auto source = open_bytes(file, *format);
  while (source->read(buffer.data(), buffer.size()) > 0) {
  }
}

}  // namespace athanor::inline documents
