#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/launched.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/core.h"
#include "documents/standard_input.h"
#include "eval/generation.h"
#include "eval/text_beginning.h"
#include "memory/rank_share.h"
#include "ops/cpu_allocator.h"
#include "ops/tensor.h"
#include "run/in_world.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"

namespace athanor::inline cli {
namespace {

// Text of several answers at the same time, written to standard output in the order of their prompts.
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

// Text as it comes, the prompt first, with an empty line between two answers. Of answers that are computed at the same
// time the first is shown as it comes; the others are held back.
std::unique_ptr<ContinuationReader> answers_as_text() { return std::make_unique<TextAnswers>(); }
// A JSON object on a line for each answer, when it and all before it are complete: prompt, prompt_ids, new_ids, text,
// ended, stop.
std::unique_ptr<ContinuationReader> answers_as_json() { return std::make_unique<JsonAnswers>(); }

// A newline at the end is that of the shell's tools, and rarely meant: the model would continue after it.
std::string read_standard_prompt() {
  announce_terminal("the prompt");
  std::string text;
  char bytes[1 << 12];
  for (size_t count; (count = std::fread(bytes, 1, sizeof bytes, stdin)) > 0;) text.append(bytes, count);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  ATHANOR_CHECK_DATA(
      !text.empty(),
      "--prompt -: standard input is empty; to begin from the end-of-document token, give --prompt \"\"");
  const auto invalid = find_invalid_utf8(text);
  ATHANOR_CHECK_DATA(!invalid, "--prompt -: standard input has invalid UTF-8 at byte {}; convert it to UTF-8",
                     invalid.value_or(0));
  return text;
}

// What the command line gives and what files hold is checked as far as it can be without the model.
std::unique_ptr<PromptSource> open_prompts(const GenerateArguments& given) {
  std::unique_ptr<PromptSource> source;
  if (given.prompts_file.empty()) {
    std::vector<std::string> prompts = given.prompts;
    const auto dash = std::ranges::find(prompts, kStandardInput);
    if (dash != prompts.end()) *dash = read_standard_prompt();
    source = listed_prompts(std::move(prompts), "--prompt");
  } else {
    if (given.prompts_file == kStandardInput) announce_terminal("prompts, one a line,");
    source = prompts_of_file(given.prompts_file);
  }
  source->check_all([](const PromptText&) {});
  return source;
}

GenerationOptions options_of(const GenerateArguments& given) {
  return {.max_new_tokens = given.max_new_tokens,
          .sampling = {given.temperature, given.top_p},
          .seed = static_cast<uint64_t>(given.seed),
          .stops = given.stops,
          .batch_size = given.batch_size};
}

// They are those of its makers, for their uses; ours are the options.
void tell_sampling_settings(const HfGeneration& generation) {
  if (generation.settings.empty()) return;
  log::info("generation_config.json asks for {}; it is not applied: give --temperature and --top-p as you want them",
            join(generation.settings, ", "));
}

// What decides which collectives a rank calls, and the tokens that it chooses.
Options compared_options(const GenerateArguments& given) {
  return {{"--set", join(given.overrides, " ")},
          {"--dtype", given.dtype},
          {"--temperature", std::to_string(given.temperature)},
          {"--top-p", std::to_string(given.top_p)},
          {"--seed", std::to_string(given.seed)}};
}

int generate_in(comm::World& world, const GenerateArguments& given) {
  at::set_num_threads(threads_of_rank(world, 0).threads);
  std::unique_ptr<PromptSource> prompts;
  if (world.rank() == 0) prompts = open_prompts(given);
  require_same_options(compared_options(given), world);
  LoadOptions load;
  load.compute_type = ops::scalar_type(number_type(given.dtype, "--dtype"));
  load.device = agree_on_devices(given.device, "--device", world);
  load.overrides = given.overrides;
  const LoadedModel model = load_model(given.model, world, load);
  std::unique_ptr<ContinuationReader> answers;
  GenerationOptions options = options_of(given);
  if (prompts) {
    if (given.special_tokens) {
      options.around = beginning_of_texts(model).around;
      tell_beginning(model, options.around);
    }
    tell_sampling_settings(model.source.config.generation);
    prompts->check_all([&](const PromptText& prompt) { encode_prompt(model, prompt, options); });
    answers = given.json ? answers_as_json() : answers_as_text();
  }
  generate(model, options, prompts.get(), answers.get());
  return 0;
}

}  // namespace

}  // namespace athanor::inline cli

ATHANOR_CORE_ENTRY(generate) {
  using namespace athanor;
  const auto& given = *static_cast<const GenerateArguments*>(arguments);
  ops::install_caching_cpu_allocator();
  return in_world({}, [&](comm::World& world, RunContext&) { return generate_in(world, given); });
}
