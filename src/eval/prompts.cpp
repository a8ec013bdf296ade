#include "eval/prompts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "base/text_lines.h"
#include "documents/document_error.h"
#include "documents/inputs.h"
#include "documents/json_text.h"
#include "documents/standard_input.h"

namespace athanor::inline eval {
namespace {

class ListedPrompts : public PromptSource {
 public:
  ListedPrompts(std::vector<std::string> texts, std::string option)
      : texts_(std::move(texts)), option_(std::move(option)) {}

  std::optional<PromptText> next(const std::function<void()>&) override {
    if (at_end()) return std::nullopt;
    return prompt(next_++);
  }
  bool at_end() const override { return next_ == texts_.size(); }
  void check_all(const std::function<void(const PromptText&)>& f) const override {
    for (size_t i = 0; i < texts_.size(); ++i) f(prompt(i));
  }

 private:
  PromptText prompt(size_t i) const {
    return {texts_[i], texts_.size() == 1 ? "" : option_ + " number " + std::to_string(i + 1)};
  }
  std::vector<std::string> texts_;
  std::string option_;
  size_t next_ = 0;
};

class PromptLines : public PromptSource {
 public:
  explicit PromptLines(const std::string& file)
      : file_(file), is_json_(holds_json(file)), lines_(shown_name(file), open(file)) {
    struct stat status {};
    if (!is_standard_input(file) && ::stat(file.c_str(), &status) == 0) {
      ATHANOR_CHECK_DATA(!S_ISDIR(status.st_mode), "--prompts: {} is a folder; name a file of prompts, one a line",
                         file);
      can_repeat_ = S_ISREG(status.st_mode);
    }
  }

  std::optional<PromptText> next(const std::function<void()>& wait) override {
    auto found = next_of(lines_, wait);
    any_ |= found.has_value();
    if (lines_.at_end()) require(any_);
    return found;
  }
  bool at_end() const override { return lines_.at_end(); }

  void check_all(const std::function<void(const PromptText&)>& f) const override {
    if (!can_repeat_) return;
    TextLines lines(file_, open(file_));
    bool any = false;
    for (; const auto prompt = next_of(lines, [] {}); any = true) f(*prompt);
    require(any);
  }

 private:
  // The ending decides as for documents. Files of unknown endings are lines of text.
  static bool holds_json(const std::string& file) {
    const auto format = input_format(file);
    if (!format) return false;
    ATHANOR_CHECK_DATA(format->compression == Compression::kNone, "--prompts: {} is compressed; decompress it", file);
    ATHANOR_CHECK_DATA(
        format->kind == InputKind::kText || format->kind == InputKind::kJsonLines,
        "--prompts: {}: prompts are lines of text, or, in a .jsonl file, a row {{\"prompt\": \"...\"}} on "
        "each line; write them so",
        file);
    return format->kind == InputKind::kJsonLines;
  }

  static int open(const std::string& file) {
    if (is_standard_input(file)) return STDIN_FILENO;
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    ATHANOR_CHECK_DATA(descriptor >= 0 || errno != ENOENT,
                       "--prompts: {} is not there; name a file of prompts, one a line, or - for standard input", file);
    if (descriptor < 0) fail_errno("--prompts: cannot open", file);
    return descriptor;
  }
  void require(bool any) const {
    ATHANOR_CHECK_DATA(any, "--prompts: {} is empty; it needs a prompt on each line", shown_name(file_));
  }

  // Blank lines between rows of JSON are passed over, as they are in documents.
  std::optional<PromptText> next_of(TextLines& lines, const std::function<void()>& wait) const {
    while (const auto line = lines.next(wait)) {
      if (!is_json_ || line->find_first_not_of(" \t\r") != std::string::npos) return prompt(*line, lines.number());
    }
    return std::nullopt;
  }

  PromptText prompt(const std::string& line, int64_t number) const {
    const std::string name = shown_name(file_) + " line " + std::to_string(number);
    const auto invalid = find_invalid_utf8(line);
    ATHANOR_CHECK_DATA(!invalid, "{} has invalid UTF-8 at byte {}; convert it to UTF-8", name, invalid.value_or(0));
    if (is_json_) return {field_of(line, name), name};
    ATHANOR_CHECK_DATA(!line.empty(),
                       "{} is empty; remove it, or, to begin from the end-of-document token, give --prompt \"\" or a "
                       ".jsonl file with {{\"prompt\": \"\"}}",
                       name);
    return {line, name};
  }

  static std::string field_of(const std::string& line, const std::string& name) {
    auto found = find_json_text(line, "prompt", false);
    if (!found.cause) return std::move(found.text);
    const std::string_view cause = found.cause;
    ATHANOR_CHECK_DATA(cause != kInvalidJson, "{} is no JSON object: {}; write {{\"prompt\": \"...\"}} on each line",
                       name, found.message);
    ATHANOR_CHECK_DATA(cause != kMissingField, "{} has no field \"prompt\"; write {{\"prompt\": \"...\"}} on each line",
                       name);
    fail<DataError>("{}: its field \"prompt\" is no string", name);
  }

  std::string file_;
  bool is_json_, can_repeat_ = false, any_ = false;
  TextLines lines_;
};

}  // namespace

std::unique_ptr<PromptSource> listed_prompts(std::vector<std::string> texts, const std::string& option) {
  return std::make_unique<ListedPrompts>(std::move(texts), option);
}

std::unique_ptr<PromptSource> prompts_of_file(const std::string& file) { return std::make_unique<PromptLines>(file); }

}  // namespace athanor::inline eval
