#pragma once
// Python's str methods on UTF-8. Positions and lengths count code points, and classes of characters are Python's.
//
// Every text that comes in is well-formed UTF-8.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::tasks {

/// Returns the characters of `text`, each as a view of its bytes.
std::vector<std::string_view> characters(std::string_view text);
int64_t num_characters(std::string_view text);

/// Returns the code point at `byte`, where a character begins, and moves `byte` to the next one.
char32_t take_character(std::string_view text, size_t& byte);

/// str.isspace() of one character; also what \s matches.
bool is_python_space(char32_t character);
/// str.isprintable() of one character.
bool is_python_printable(char32_t character);
/// str.isdigit() of a whole text.
bool is_digits(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
/// str.strip(), lstrip() and rstrip().
std::string_view strip(std::string_view text, Side side = Side::kBoth);
/// The same with the characters that are removed.
std::string_view strip(std::string_view text, std::string_view removed, Side side = Side::kBoth);

/// str.split() at runs of spaces, and split(separator), which must not be empty. `most` < 0: no limit.
std::vector<std::string> split(std::string_view text, int64_t most = -1);
std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most = -1);
/// str.rsplit(separator, most).
std::vector<std::string> rsplit(std::string_view text, std::string_view separator, int64_t most = -1);
/// str.splitlines().
std::vector<std::string> split_lines(std::string_view text);

/// str.find(part, begin, end) and rfind in characters; −1 if there is none. `begin` and `end` are as in a slice.
int64_t find_text(std::string_view text, std::string_view part, int64_t begin, int64_t end);
int64_t find_text_from_right(std::string_view text, std::string_view part, int64_t begin, int64_t end);
/// str.count(part).
int64_t count_text(std::string_view text, std::string_view part);
/// str.replace(part, by, most). `most` < 0: all.
std::string replace_text(std::string_view text, std::string_view part, std::string_view by, int64_t most = -1);

/// text[begin:end:step] for bounds that were made to fit (0 ≤ begin, end ≤ length; as Python's slice.indices).
std::string slice_text(std::string_view text, int64_t begin, int64_t end, int64_t step);

/// The number of parts that re.split(r"\s+", text) gives: lm_eval's count of words.
int64_t count_words(std::string_view text);

/// str.lower(), upper(), capitalize(), title(), with Unicode's full mappings.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string capitalize(std::string_view text);
std::string to_title(std::string_view text);
/// str.islower() and isupper().
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

}  // namespace athanor::tasks
