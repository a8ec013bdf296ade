#include "eval/text_slots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "ops/transfer.h"

namespace athanor::inline eval {
namespace {

using Numbers = std::vector<int64_t>;

void put(Numbers& out, const Numbers& list) {
  out.push_back(std::ssize(list));
  out.insert(out.end(), list.begin(), list.end());
}

class Reader {
 public:
  explicit Reader(const Numbers& numbers) : numbers_(numbers) {}
  int64_t next() {
    ATHANOR_ASSERT(at_ < numbers_.size());
    return numbers_[at_++];
  }
  Numbers list() {
    Numbers result(static_cast<size_t>(next()));
    for (int64_t& each : result) each = next();
    return result;
  }

 private:
  const Numbers& numbers_;
  size_t at_ = 0;
};

}  // namespace

bool GenerationWork::begins() const {
  return std::ranges::any_of(parts, [](const Part& part) { return !part.begun.empty(); });
}

std::string GenerationWork::bytes() const {
  Numbers out = {slots, capacity, std::ssize(parts)};
  for (const Part& part : parts) {
    put(out, part.left);
    put(out, part.next);
    out.push_back(std::ssize(part.begun));
    for (const NewText& text : part.begun) {
      out.push_back(text.index);
      put(out, text.ids);
    }
  }
  return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(int64_t)};
}

GenerationWork GenerationWork::from_bytes(const std::string& bytes) {
  Numbers numbers(bytes.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int64_t));
  Reader in(numbers);
  GenerationWork work;
  work.slots = in.next();
  work.capacity = in.next();
  work.parts.resize(static_cast<size_t>(in.next()));
  for (Part& part : work.parts) {
    part.left = in.list();
    part.next = in.list();
    part.begun.resize(static_cast<size_t>(in.next()));
    for (NewText& text : part.begun) {
      text.index = in.next();
      text.ids = in.list();
    }
  }
  return work;
}

namespace {

Tensor row_of(const std::vector<int64_t>& ids) {
  return at::tensor(at::ArrayRef<int64_t>(ids), at::kLong).view({1, std::ssize(ids)});
}

// Every rank of an expert group computes in each pass, also without tokens.
bool shares_experts(const Mesh& mesh) { return mesh.layout().expert() > 1; }

}  // namespace

TextSlots::TextSlots(const LoadedModel& model, const Sampling& sampling, uint64_t seed)
    : model_(model), sampling_(sampling), seed_(seed), caches_(model.state->chunks.size()) {}

// Rows 0, 1, … of the caches have texts, so that a device computes over one range of its memory.
void TextSlots::leave(int64_t slot) {
  const auto last = std::ssize(texts_) - 1;
  if (slot != last) {
    const int64_t length = texts_.back().length;
    for (const auto& caches : caches_) {
      for (const KvCache& cache : caches) {
        for (const Tensor& x : {cache.k, cache.v}) x[slot].narrow(0, 0, length).copy_(x[last].narrow(0, 0, length));
      }
    }
    texts_[static_cast<size_t>(slot)] = texts_.back();
  }
  texts_.pop_back();
}

void TextSlots::grow(int64_t slots, int64_t capacity) {
  if (slots <= slots_ && capacity <= capacity_) return;
  const int64_t kept = std::ssize(texts_);
  for (size_t c = 0; c < caches_.size(); ++c) {
    if (kept == 0) caches_[c].clear();
    auto grown = model_.state->chunks[c]->make_caches(slots, capacity);
    for (size_t l = 0; l < caches_[c].size() && kept > 0; ++l) {
      const auto copy = [&](const Tensor& to, const Tensor& from) {
        to.narrow(0, 0, kept).narrow(1, 0, capacity_).copy_(from.narrow(0, 0, kept));
      };
      copy(grown[l].k, caches_[c][l].k);
      copy(grown[l].v, caches_[c][l].v);
    }
    caches_[c] = std::move(grown);
  }
  slots_ = slots;
  capacity_ = capacity;
}

NewTokens TextSlots::begin(const std::vector<GenerationWork::NewText>& texts) {
  NewTokens tokens;
  for (const auto& text : texts) {
    tokens.slots.push_back(std::ssize(texts_));
    tokens.lengths.push_back(std::ssize(text.ids));
    tokens.past.push_back(0);
    texts_.push_back({text.index, 0, 0});
  }
  return tokens;
}

NewTokens TextSlots::go_on() {
  NewTokens tokens;
  for (const Text& text : texts_) {
    tokens.slots.push_back(std::ssize(tokens.slots));
    tokens.lengths.push_back(1);
    tokens.past.push_back(text.length);
  }
  return tokens;
}

// Hidden states go from stage to stage: one after the other, since a token of a text needs the one before.
Tensor TextSlots::run_stages(const NewTokens& tokens, Tensor x) {
  comm::Communicator& ranks = model_.state->mesh.group(GroupKind::kPipeline);
  const int size = ranks.size();
  const int num_stages = size * static_cast<int>(caches_.size());
  const bool sends = tokens.num_texts() > 0;
  const int64_t count = x.size(1);
  std::vector<std::pair<Tensor, comm::Pending>> sent;
  for (int stage = ranks.rank(); stage < num_stages; stage += size) {
    const auto chunk = static_cast<size_t>(stage / size);
    const auto& weights = model_.state->parameters.compute();
    if (stage > 0 && size > 1) {
      x = at::empty({1, count, model_.config.hidden_size}, weights.options());
      if (sends) ranks.receive(x, (stage - 1) % size).wait();
    }
    x = model_.state->chunks[chunk]->forward_cached(x, tokens, caches_[chunk]);
    if (stage + 1 == num_stages || size == 1 || !sends) continue;
    x = x.contiguous();
    sent.emplace_back(x, ranks.send(x, (stage + 1) % size));
  }
  for (auto& [content, pending] : sent) pending.wait();
  return x;
}

std::vector<int64_t> TextSlots::choose(const NewTokens& tokens, const Tensor& logits) {
  const Tensor rows = ops::fetch(logits).narrow(1, 0, model_.num_tokens);
  std::vector<int64_t> ids(tokens.slots.size());
  at::parallel_for(0, tokens.num_texts(), 1, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) {
      const Text& text = texts_[static_cast<size_t>(tokens.slots[static_cast<size_t>(r)])];
      const CounterRandom random(seed_, fmt::format("generate {}", text.index));
      ids[static_cast<size_t>(r)] =
          sample_token(rows[r], sampling_, random.uniform(static_cast<uint64_t>(text.num_new)));
    }
  });
  return ids;
}

std::vector<int64_t> TextSlots::compute(const GenerationWork& work) {
  const Mesh& mesh = model_.state->mesh;
  const GenerationWork::Part& part = work.parts.at(static_cast<size_t>(mesh.data_rank()));
  for (const int64_t slot : part.left) leave(slot);
  grow(work.slots, work.capacity);
  std::vector<int64_t> given = part.next;
  for (const auto& text : part.begun) given.insert(given.end(), text.ids.begin(), text.ids.end());
  const NewTokens tokens = work.begins() ? begin(part.begun) : go_on();
  if (tokens.num_texts() == 0 && !shares_experts(mesh)) return {};
  const Tensor result = run_stages(tokens, row_of(given));
  const comm::Communicator& stages = mesh.group(GroupKind::kPipeline);
  std::vector<int64_t> ids;
  if (stages.rank() == stages.size() - 1 && tokens.num_texts() > 0) ids = choose(tokens, result);
  for (size_t r = 0; r < tokens.slots.size(); ++r) {
    Text& text = texts_[static_cast<size_t>(tokens.slots[r])];
    text.length += tokens.lengths[r];
    ++text.num_new;
  }
  return ids;
}

}  // namespace athanor::inline eval
