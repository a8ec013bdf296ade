#include "eval/generation.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "eval/continued_text.h"
#include "eval/text_beginning.h"
#include "eval/text_slots.h"
#include "parallel/share.h"

namespace athanor::inline eval {
namespace {

// New texts are computed together, up to this many tokens: that is enough for full speed, and bounds the memory.
constexpr int64_t kTokensOfPass = 2048;

struct ActiveText {
  ActiveText(Continuation begun, const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : answer(std::move(begun)), added(tokenizer, answer.prompt_ids), filter(stops) {}

  Continuation answer;
  ContinuedText added;
  StopFilter filter;
  bool done = false;
};

// The first rank's view: which text is in which slot of which data rank, and what comes next.
class Planner {
 public:
  Planner(const LoadedModel& model, const GenerationOptions& options, PromptSource& prompts,
          ContinuationReader& answers)
      : model_(model), options_(options), prompts_(prompts), answers_(answers),
        texts_(static_cast<size_t>(model.state->mesh.layout().data())) {}

  GenerationWork next() {
    GenerationWork work;
    work.parts.resize(texts_.size());
    for (size_t d = 0; d < texts_.size(); ++d) leave_done(texts_[d], work.parts[d].left);
    if (may_begin()) begin(work);
    if (num_active() == 0) {
      if (refused_) std::rethrow_exception(refused_);
      return {};
    }
    work.slots = slots_;
    work.capacity = capacity_;
    begins_ = work.begins();
    if (begins_) return work;
    for (size_t d = 0; d < texts_.size(); ++d) {
      for (const auto& text : texts_[d]) work.parts[d].next.push_back(text->answer.new_ids.back());
    }
    return work;
  }

  /// Adds the tokens chosen by each data rank: of the texts begun, or of all.
  void take(const std::vector<std::vector<int64_t>>& ids) {
    for (size_t d = 0; d < texts_.size(); ++d) {
      const size_t first = begins_ ? texts_[d].size() - begun_[d] : 0;
      ATHANOR_ASSERT(ids[d].size() == texts_[d].size() - first);
      for (size_t i = 0; i < ids[d].size(); ++i) add(*texts_[d][first + i], static_cast<uint32_t>(ids[d][i]));
    }
  }

 private:
  using Texts = std::vector<std::unique_ptr<ActiveText>>;

  // From the last slot on, so that no text that is done moves.
  static void leave_done(Texts& texts, std::vector<int64_t>& left) {
    for (auto slot = std::ssize(texts) - 1; slot >= 0; --slot) {
      if (!texts[static_cast<size_t>(slot)]->done) continue;
      left.push_back(slot);
      std::swap(texts[static_cast<size_t>(slot)], texts.back());
      texts.pop_back();
    }
  }

  int64_t num_active() const {
    int64_t count = 0;
    for (const Texts& texts : texts_) count += std::ssize(texts);
    return count;
  }
  int64_t most_texts() const { return options_.batch_size * std::ssize(texts_); }

  // A pass for few new texts costs nearly as much as a token of all texts, so it waits until a quarter of the batch is
  // free. Answers that cannot be written yet are bounded by four batches.
  bool may_begin() const {
    const int64_t free = most_texts() - num_active();
    return (num_active() == 0 || 4 * free >= most_texts()) && has_window();
  }
  bool has_window() const { return index_ < answers_.num_written() + 4 * static_cast<size_t>(most_texts()); }

  // Takes prompts as long as there are some, and room for them. Waits for the first if nothing else is to be done.
  void begin(GenerationWork& work) {
    begun_.assign(texts_.size(), 0);
    int64_t tokens = 0;
    while (num_active() < most_texts() && has_window()) {
      if (!waiting_ && !take_prompt()) return;
      const int64_t length = std::ssize(waiting_->prompt_ids);
      if (tokens > 0 && tokens + length > kTokensOfPass * std::ssize(texts_)) return;
      tokens += length;
      begin_text(work, std::move(*waiting_));
      waiting_.reset();
    }
  }

  // A prompt that is refused ends the generation when the texts that have begun are complete.
  bool take_prompt() {
    if (refused_) return false;
    try {
      return read_prompt();
    } catch (...) {
      refused_ = std::current_exception();
      return false;
    }
  }

  bool read_prompt() {
    comm::World& world = model_.state->mesh.world();
    const auto wait = [&] { world.note_work(1); };  // the other ranks wait for this one
    auto prompt = prompts_.next(num_active() == 0 ? std::function<void()>(wait) : nullptr);
    if (!prompt) return false;
    waiting_ = Continuation{.index = index_++,
                            .prompt = prompt->text,
                            .prompt_ids = encode_prompt(model_, *prompt, options_),
                            .new_ids = {},
                            .text = {}};
    return true;
  }

  void begin_text(GenerationWork& work, Continuation answer) {
    const auto fewest = std::ranges::min_element(texts_, {}, [](const Texts& texts) { return texts.size(); });
    const auto d = static_cast<size_t>(fewest - texts_.begin());
    const std::vector<int64_t> ids(answer.prompt_ids.begin(), answer.prompt_ids.end());
    work.parts[d].begun.push_back({static_cast<int64_t>(answer.index), ids});
    ++begun_[d];
    capacity_ = std::max(capacity_, std::ssize(ids) + options_.max_new_tokens);
    texts_[d].push_back(std::make_unique<ActiveText>(std::move(answer), *model_.tokenizer, options_.stops));
    slots_ = std::max(slots_, std::ssize(texts_[d]));
    answers_.add(texts_[d].back()->answer, "");
  }

  void add(ActiveText& text, uint32_t id) {
    Continuation& answer = text.answer;
    answer.ended = std::ranges::find(model_.end_ids, id) != model_.end_ids.end();
    if (!answer.ended) {
      answer.new_ids.push_back(id);
      show(text, text.filter.push(text.added.push(id)));
    }
    text.done = answer.ended || text.filter.found() || std::ssize(answer.new_ids) == options_.max_new_tokens;
    if (!text.done) return;
    show(text, text.filter.push(text.added.finish()));
    show(text, text.filter.finish());
    answer.stop = text.filter.found();
    answers_.end(answer);
  }

  void show(ActiveText& text, const std::string& piece) {
    if (piece.empty()) return;
    text.answer.text += piece;
    answers_.add(text.answer, piece);
  }

  const LoadedModel& model_;
  const GenerationOptions& options_;
  PromptSource& prompts_;
  ContinuationReader& answers_;
  std::vector<Texts> texts_;  // by data rank, by slot
  std::vector<size_t> begun_;
  bool begins_ = false;
  std::optional<Continuation> waiting_;  // a prompt for which there was no room in the pass
  std::exception_ptr refused_;           // why there are no further prompts
  size_t index_ = 0;                     // number of the next prompt
  int64_t slots_ = 0, capacity_ = 0;
};

// For each data rank the rank of the world that reports its tokens: the first tensor rank of the last stage.
std::vector<int> reporters(const Layout& layout) {
  std::vector<int> ranks(static_cast<size_t>(layout.data()));
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    if (layout.coordinate(rank, Axis::kPipeline) == layout.pipeline() - 1 &&
        layout.coordinate(rank, Axis::kTensor) == 0)
      ranks[static_cast<size_t>(layout.data_rank(rank))] = rank;
  }
  return ranks;
}

// Returns the tokens of each data rank. Collective.
std::vector<std::vector<int64_t>> gather_ids(const Mesh& mesh, const std::vector<int64_t>& own, int64_t slots) {
  if (mesh.world().size() == 1) return {own};
  constexpr int64_t kNone = -1;
  const Tensor mine = at::full({slots}, kNone, at::kLong);
  std::copy(own.begin(), own.end(), mine.data_ptr<int64_t>());
  const Tensor all = at::empty({mesh.world().size(), slots}, at::kLong);
  mesh.world().all().all_gather(all, mine).wait();
  std::vector<std::vector<int64_t>> ids;
  for (const int rank : reporters(mesh.layout())) {
    const auto* first = all[rank].const_data_ptr<int64_t>();
    ids.emplace_back(first, std::find(first, first + slots, kNone));
  }
  return ids;
}

}  // namespace

std::vector<uint32_t> encode_prompt(const LoadedModel& model, const PromptText& prompt,
                                    const GenerationOptions& options) {
  const std::string name = prompt.name.empty() ? "the prompt" : prompt.name;
  auto ids = encode_in_template(*model.tokenizer, options.around, prompt.text);
  if (ids.empty() && model.eos_id) ids.push_back(*model.eos_id);  // as if a document began
  ATHANOR_CHECK(!ids.empty(), "{} is empty, and this model has no end-of-document token to begin from", name);
  ATHANOR_CHECK(std::ssize(ids) + options.max_new_tokens <= model.config.text_positions(),
                "{} has {} tokens and --max-new-tokens is {}: together more than the model's {} positions{}", name,
                ids.size(), options.max_new_tokens, model.config.text_positions(),
                model.config.text_positions() < model.config.max_position_embeddings
                    ? " that longrope has short factors for; ask for fewer"
                    : "");
  return ids;
}

void generate(const LoadedModel& model, const GenerationOptions& options, PromptSource* prompts,
              ContinuationReader* answers) {
  const Mesh& mesh = model.state->mesh;
  ATHANOR_ASSERT(options.batch_size > 0 && (mesh.is_first() == (prompts && answers)));
  std::unique_ptr<Planner> planner;
  if (mesh.is_first()) planner = std::make_unique<Planner>(model, options, *prompts, *answers);
  TextSlots slots(model, options.sampling, options.seed);
  for (;;) {
    GenerationWork work = planner ? planner->next() : GenerationWork{};
    if (mesh.world().size() > 1)
      work = GenerationWork::from_bytes(broadcast_text(mesh.world().all(), planner ? work.bytes() : ""));
    if (work.parts.empty()) return;
    const auto ids = gather_ids(mesh, slots.compute(work), work.slots);
    if (planner) planner->take(ids);
  }
}

}  // namespace athanor::inline eval
