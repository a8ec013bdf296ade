#include "documents/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "documents/document_error.h"
#include "documents/other_content.h"
#include "documents/standard_input.h"
#include "documents/zstd_frame.h"

namespace athanor::inline documents {
namespace {

constexpr size_t kCompressedBytes = size_t{1} << 17;

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(const std::filesystem::path& file)
      : name_(shown_name(file)), fd_(is_standard_input(file) ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                                             : ::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail_errno("cannot open", name_);
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~PlainSource() override { ::close(fd_); }

  size_t read(char* out, size_t capacity) override {
    for (;;) {
      const ssize_t got = ::read(fd_, out, capacity);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("cannot read", name_);
      position_ += static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    }
  }
  uint64_t file_position() const override { return position_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int fd_;
  uint64_t position_ = 0;
};

// The common part of gzip and zstd: a buffer of compressed bytes, and a decoder that is informed of the end of the
// file.
class CompressedSource : public ByteSource {
 public:
  CompressedSource(const std::filesystem::path& file, const InputFormat& format)
      : file_(file), format_(format), buffer_(kCompressedBytes) {}
  uint64_t file_position() const override { return file_.file_position() - (filled_ - used_); }

 protected:
  // Returns false at the end of the file.
  bool refill() {
    if (used_ < filled_) return true;
    const bool is_first = file_.file_position() == 0;
    used_ = 0;
    filled_ = file_.read(buffer_.data(), buffer_.size());
    if (is_first) check_stored_content({buffer_.data(), filled_}, file_.name(), format_);
    return filled_ > 0;
  }
  [[noreturn]] void complain(const char* kind, const std::string& what) const {
    throw DocumentError(kDamagedCompression,
                        fmt::format("{}: damaged {} at byte {}: {}; get the file again (what was read before may be "
                                    "damaged too)",
                                    file_.name(), kind, file_position(), what));
  }
  [[noreturn]] void complain_of_end(const char* kind) const {
    throw DocumentError(kDamagedCompression,
                        fmt::format("{}: {} data is cut off: the file ends at byte {} before its data does; get the "
                                    "file again",
                                    file_.name(), kind, file_position()));
  }

  PlainSource file_;
  InputFormat format_;
  std::vector<char> buffer_;
  size_t used_ = 0, filled_ = 0;
};

class GzipSource : public CompressedSource {
 public:
  GzipSource(const std::filesystem::path& file, const InputFormat& format) : CompressedSource(file, format) {
    constexpr int kGzipOnly = 15 + 16;  // the largest window, and only gzip's header
    if (::inflateInit2(&stream_, kGzipOnly) != Z_OK) throw Error("zlib cannot start (out of memory?)");
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

  size_t read(char* out, size_t capacity) override {
    while (!ended_) {
      if (!refill()) {
        if (in_member_) complain_of_end("gzip");
        break;
      }
      if (!in_member_ && !start_member()) break;
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data() + used_);
      stream_.avail_in = static_cast<uInt>(filled_ - used_);
      stream_.next_out = reinterpret_cast<Bytef*>(out);
      stream_.avail_out = static_cast<uInt>(std::min(capacity, size_t{1} << 30));
      const uInt room = stream_.avail_out;
      const int status = ::inflate(&stream_, Z_NO_FLUSH);
      used_ = filled_ - stream_.avail_in;
      if (status == Z_STREAM_END) {
        in_member_ = false;
        ::inflateReset(&stream_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        complain("gzip", stream_.msg ? stream_.msg : "unreadable");
      }
      if (room > stream_.avail_out) return room - stream_.avail_out;
    }
    ended_ = true;
    return 0;
  }

 private:
  // After a member comes the next member's header, or zeros up to the end (tape blocks), and nothing else.
  bool start_member() {
    if (any_member_ && buffer_[used_] == '\0') {
      while (refill()) {
        if (buffer_[used_] != '\0') complain("gzip", "neither zeros nor another member follow its end");
        ++used_;
      }
      return false;
    }
    in_member_ = any_member_ = true;
    return true;
  }

  z_stream stream_{};
  bool in_member_ = false, any_member_ = false, ended_ = false;
};

class ZstdSource : public CompressedSource {
 public:
  ZstdSource(const std::filesystem::path& file, const InputFormat& format, uint64_t max_window)
      : CompressedSource(file, format), max_window_(max_window), stream_(::ZSTD_createDStream()) {
    if (!stream_) throw Error("zstd cannot start (out of memory?)");
    const auto bounds = ::ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    const int log = static_cast<int>(std::bit_width(max_window - 1));
    ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, std::clamp(log, bounds.lowerBound, bounds.upperBound));
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }

  size_t read(char* out, size_t capacity) override {
    ZSTD_outBuffer output{out, capacity, 0};
    while (output.pos == 0) {
      const bool more = refill();
      if (!more && !in_frame_) return 0;
      if (!in_frame_) check_frame(parse_zstd_frame({buffer_.data() + used_, filled_ - used_}));
      ZSTD_inBuffer input{buffer_.data(), filled_, used_};
      const size_t status = ::ZSTD_decompressStream(stream_, &output, &input);
      used_ = input.pos;
      if (::ZSTD_isError(status)) complain_of(status);
      in_frame_ = status != 0;
      if (!more && output.pos == 0 && in_frame_) complain_of_end("zstd");
    }
    return output.pos;
  }

 private:
  void check_frame(const ZstdFrame& frame) const {
    if (frame.dictionary_id != 0) complain_of_dictionary(fmt::format(" (number {})", frame.dictionary_id));
    if (frame.window > max_window_) complain_of_window(format_bytes(static_cast<double>(frame.window)));
  }

  // The header of a frame may end behind the bytes in the buffer, so that only the library reads all of it.
  [[noreturn]] void complain_of(size_t status) const {
    const auto code = ::ZSTD_getErrorCode(status);
    if (code == ZSTD_error_dictionary_wrong) complain_of_dictionary("");
    if (code == ZSTD_error_frameParameter_windowTooLarge) complain_of_window("more");
    if (code == ZSTD_error_memory_allocation) throw Error(file_.name() + ": too little memory for zstd's window");
    complain("zstd", ::ZSTD_getErrorName(status));
  }
  [[noreturn]] void complain_of_dictionary(const std::string& number) const {
    throw DocumentError(kUnsupportedCompression,
                        fmt::format("{}: the zstd frame at byte {} needs a dictionary{}, which is not supported; "
                                    "decompress it with `zstd -d -D DICTIONARY`",
                                    file_.name(), file_position(), number));
  }
  [[noreturn]] void complain_of_window(const std::string& window) const {
    throw DocumentError(
        kUnsupportedCompression,
        fmt::format("{}: the zstd frame at byte {} has a window of {}, and {} is the most here; decompress the file "
                    "(zstd -d --long=31)",
                    file_.name(), file_position(), window, format_bytes(static_cast<double>(max_window_))));
  }

  uint64_t max_window_;
  ZSTD_DStream* stream_;
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, const InputFormat& format,
                                       uint64_t max_zstd_window) {
  switch (format.compression) {
    case Compression::kGzip: return std::make_unique<GzipSource>(file, format);
    case Compression::kZstd: return std::make_unique<ZstdSource>(file, format, max_zstd_window);
    case Compression::kNone: break;
  }
  return std::make_unique<PlainSource>(file);
}

}  // namespace athanor::inline documents
