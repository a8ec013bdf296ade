#pragma once
// The lines of a text, read the same way everywhere: neither a byte-order mark before the first line nor a carriage
// return at the end of a line is part of it.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace athanor {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns `text` without the byte-order mark that it may begin with.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

/// The lines of a file descriptor, which it closes unless it is standard input. It holds one line at a time.
class TextLines {
 public:
  /// @param name  of the file, for messages.
  TextLines(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}
  ~TextLines();
  TextLines(const TextLines&) = delete;
  TextLines& operator=(const TextLines&) = delete;

  /// Returns the next line, or nothing: there is none left (at_end()), or none has come yet.
  /// @param wait  called again and again while the next line has not come; null: do not wait.
  /// @throws DataError if the file's first bytes show that it is no text (content_kind.h); IoError.
  std::optional<std::string> next(const std::function<void()>& wait);
  /// As above, and waits.
  std::optional<std::string> next() {
    return next([] {});
  }
  bool at_end() const { return ended_ && begin_ == buffer_.size(); }
  int64_t number() const { return number_; }  ///< number of the last line, from 1

 private:
  std::string take(size_t end, size_t newline);
  bool is_readable(const std::function<void()>& wait) const;
  void read_more();

  std::string name_;
  int descriptor_;
  std::string buffer_;
  size_t begin_ = 0, searched_ = 0;  // in the buffer: of the next line, and of what has not been searched for its end
  int64_t number_ = 0;
  bool started_ = false, ended_ = false;
};

}  // namespace athanor
