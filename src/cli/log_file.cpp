#include "cli/log_file.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/content_kind.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "documents/standard_input.h"

namespace athanor::inline cli {
namespace {

constexpr size_t kFrontBytes = 4;
constexpr size_t kPieceBytes = size_t{1} << 16;

Compression compression_of(std::string_view front) {
  switch (recognise_content(front)) {
    case ContentKind::kGzip: return Compression::kGzip;
    case ContentKind::kZstd: return Compression::kZstd;
    default: return Compression::kNone;
  }
}

// A stream whose first bytes have been read already.
class WithFront : public ByteSource {
 public:
  WithFront(std::string front, std::unique_ptr<ByteSource> rest) : front_(std::move(front)), rest_(std::move(rest)) {}

  size_t read(char* out, size_t capacity) override {
    if (front_.empty()) return rest_->read(out, capacity);
    const size_t size = front_.copy(out, capacity);
    front_.erase(0, size);
    return size;
  }
  uint64_t file_position() const override { return rest_->file_position() - front_.size(); }

 private:
  std::string front_;
  std::unique_ptr<ByteSource> rest_;
};

// Reads the rest of a stream from a file in memory.
std::unique_ptr<ByteSource> open_kept(ByteSource& source, Compression compression) {
  const int file = ::memfd_create("log", MFD_CLOEXEC);
  if (file < 0) fail_errno("cannot keep in memory", "standard input");
  std::string piece(kPieceBytes, '\0');
  while (const size_t got = source.read(piece.data(), piece.size()))
    for (size_t at = 0; at < got;) {
      const ssize_t written = ::write(file, piece.data() + at, got - at);
      if (written < 0) fail_errno("cannot keep in memory", "standard input");
      at += static_cast<size_t>(written);
    }
  auto kept = open_bytes(fmt::format("/proc/self/fd/{}", file), {InputKind::kText, compression});
  ::close(file);
  return kept;
}

std::unique_ptr<ByteSource> open_standard_input() {
  auto source = open_bytes(kStandardInput, {InputKind::kText});
  std::string front(kFrontBytes, '\0');
  size_t size = 0;
  while (size < front.size()) {
    const size_t got = source->read(front.data() + size, front.size() - size);
    if (got == 0) break;
    size += got;
  }
  front.resize(size);
  const Compression compression = compression_of(front);
  auto whole = std::make_unique<WithFront>(std::move(front), std::move(source));
  if (compression == Compression::kNone) return whole;
  return open_kept(*whole, compression);
}

}  // namespace

std::unique_ptr<ByteSource> open_log(const std::string& name) {
  if (is_standard_input(name)) return open_standard_input();
  std::array<char, kFrontBytes> front{};
  const size_t size = FileReader(name).read_up_to(0, front.data(), front.size());
  return open_bytes(name, {InputKind::kText, compression_of({front.data(), size})});
}

}  // namespace athanor::inline cli
