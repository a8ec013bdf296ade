#include "base/text_lines.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/content_kind.h"
#include "base/error.h"

namespace athanor {

TextLines::~TextLines() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

std::optional<std::string> TextLines::next(const std::function<void()>& wait) {
  for (;;) {
    if (const size_t end = buffer_.find('\n', searched_); end != std::string::npos) return take(end, 1);
    searched_ = buffer_.size();
    if (ended_) return at_end() ? std::nullopt : std::optional(take(buffer_.size(), 0));
    if (!is_readable(wait)) return std::nullopt;
    read_more();
  }
}

std::string TextLines::take(size_t end, size_t newline) {
  std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
  if (++number_ == 1) line = without_byte_order_mark(line);
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string taken(line);
  begin_ = searched_ = end + newline;
  return taken;
}

// Waits until read() would not. A regular file never waits.
bool TextLines::is_readable(const std::function<void()>& wait) const {
  constexpr int kLook_ms = 1000;
  for (;;) {
    pollfd look{descriptor_, POLLIN, 0};
    const int ready = ::poll(&look, 1, wait ? kLook_ms : 0);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_errno("cannot read", name_);
    if (!wait) return false;
    wait();
  }
}

void TextLines::read_more() {
  std::array<char, 1 << 16> bytes;
  const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  if (count < 0) fail_errno("cannot read", name_);
  ended_ = count == 0;
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  buffer_.append(bytes.data(), static_cast<size_t>(count));
  if (started_ || ended_) return;
  started_ = true;
  const auto kind = recognise_content(buffer_);
  const bool is_text = kind == ContentKind::kUnknown || kind == ContentKind::kHtml;
  ATHANOR_CHECK_DATA(is_text, "{} is {}", name_, describe_content(kind));
}

}  // namespace athanor
