#pragma once
// Finds the end of a JSON value without parsing it, by brackets and strings alone.

namespace athanor::inline documents {

/// Feed it the bytes of a value one after another. A value that begins with a bracket ends when balanced() is true
/// again.
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
  /// True if no bracket and no string is open.
  bool balanced() const { return depth_ <= 0 && !in_string_; }

 private:
  long depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace athanor::inline documents
