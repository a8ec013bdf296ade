#pragma once
// Ends a text before the first stop string, while the text still comes in pieces. This header needs no libtorch.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline eval {

/// Passes a text on, piece by piece, up to a stop string.
///
/// If there are several stop strings, the one that is complete first ends the text; if some are complete with the same
/// byte, the longest. So the result does not depend on how the text is cut into pieces. Bytes that may begin a stop
/// string are held back until it is certain that they do not.
class StopFilter {
 public:
  /// @param stops  none of them empty.
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Adds a piece and returns the text that may be shown now; nothing more once a stop string was found.
  std::string push(std::string_view piece);
  /// The text ends without a stop string: returns what was held back.
  std::string finish();

  /// The stop string that has ended the text.
  const std::optional<std::string>& found() const { return found_; }

 private:
  const std::string* stop_at(size_t end) const;
  size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace athanor::inline eval
