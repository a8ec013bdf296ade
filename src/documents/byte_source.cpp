#include "documents/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/error.h"
#include "documents/standard_input.h"

namespace athanor {
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
  explicit CompressedSource(const std::filesystem::path& file) : file_(file), buffer_(kCompressedBytes) {}
  uint64_t file_position() const override { return file_.file_position() - (filled_ - used_); }

 protected:
  // Returns false at the end of the file.
  bool refill() {
    if (used_ < filled_) return true;
    used_ = 0;
    filled_ = file_.read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }
  [[noreturn]] void complain(const char* kind, const std::string& what) const {
    fail<DamagedBytes>("{}: damaged {} at byte {}: {}; get the file again (what was read before may be damaged too)",
                       file_.name(), kind, file_position(), what);
  }
  [[noreturn]] void complain_of_end(const char* kind) const {
    fail<DamagedBytes>("{}: {} data is cut off: the file ends at byte {} before its data does; get the file again",
                       file_.name(), kind, file_position());
  }

  PlainSource file_;
  std::vector<char> buffer_;
  size_t used_ = 0, filled_ = 0;
};

class GzipSource : public CompressedSource {
 public:
  explicit GzipSource(const std::filesystem::path& file) : CompressedSource(file) {
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
  explicit ZstdSource(const std::filesystem::path& file) : CompressedSource(file), stream_(::ZSTD_createDStream()) {
    if (!stream_) throw Error("zstd cannot start (out of memory?)");
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }

  size_t read(char* out, size_t capacity) override {
    ZSTD_outBuffer output{out, capacity, 0};
    while (output.pos == 0) {
      const bool more = refill();
      if (!more && !in_frame_) return 0;
      ZSTD_inBuffer input{buffer_.data(), filled_, used_};
      const size_t status = ::ZSTD_decompressStream(stream_, &output, &input);
      used_ = input.pos;
      if (::ZSTD_isError(status)) complain("zstd", ::ZSTD_getErrorName(status));
      in_frame_ = status != 0;
      if (!more && output.pos == 0 && in_frame_) complain_of_end("zstd");
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression) {
  switch (compression) {
    case Compression::kGzip: return std::make_unique<GzipSource>(file);
    case Compression::kZstd: return std::make_unique<ZstdSource>(file);
    case Compression::kNone: break;
  }
  return std::make_unique<PlainSource>(file);
}

}  // namespace athanor
