#include "cli/core/written_answers.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor::inline cli {
namespace {

// Text of several answers at the same time, written in order.
class InOrder {
 public:
  void add(size_t index, std::string_view text) {
    if (index == current_) return write(text);
    held_[index].text += text;
  }
  void end(size_t index) {
    held_[index].ended = true;
    while (held_.contains(current_) && held_[current_].ended) {
      held_.erase(current_++);
      if (const auto next = held_.find(current_); next != held_.end()) write(std::exchange(next->second.text, {}));
    }
  }
  size_t num_written() const { return current_; }

 private:
  struct Held {
    std::string text;
    bool ended = false;
  };
  static void write(std::string_view text) {
    const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if ((std::fflush(stdout) != 0 || !is_written) && errno != EPIPE) fail_errno("cannot write to", "standard output");
  }
  size_t current_ = 0;  // the answer that is written as it comes
  std::map<size_t, Held> held_;
};

class TextAnswers : public ContinuationReader {
 public:
  void add(const Continuation& answer, std::string_view piece) override {
    if (piece.empty()) {
      out_.add(answer.index, (answer.index > 0 ? "\n" : "") + answer.prompt);
    } else {
      out_.add(answer.index, piece);
    }
  }
  void end(const Continuation& answer) override {
    out_.add(answer.index, "\n");
    out_.end(answer.index);
  }
  size_t num_written() const override { return out_.num_written(); }

 private:
  InOrder out_;
};

class JsonAnswers : public ContinuationReader {
 public:
  void add(const Continuation&, std::string_view) override {}
  void end(const Continuation& answer) override {
    nlohmann::json line = {{"prompt", answer.prompt}, {"prompt_ids", answer.prompt_ids}, {"new_ids", answer.new_ids},
                           {"text", answer.text},     {"ended", answer.ended},           {"stop", nullptr}};
    if (answer.stop) line["stop"] = *answer.stop;
    out_.add(answer.index, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    out_.end(answer.index);
  }
  size_t num_written() const override { return out_.num_written(); }

 private:
  InOrder out_;
};

}  // namespace

std::unique_ptr<ContinuationReader> answers_as_text() { return std::make_unique<TextAnswers>(); }
std::unique_ptr<ContinuationReader> answers_as_json() { return std::make_unique<JsonAnswers>(); }

}  // namespace athanor::inline cli
