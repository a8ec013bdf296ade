#include "data/mixture.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace athanor {
namespace {

std::vector<MixtureSource> sorted_by_content(std::vector<MixtureSource> sources) {
  std::sort(sources.begin(), sources.end(), [](const MixtureSource& a, const MixtureSource& b) {
    return a.dataset.content_hash() < b.dataset.content_hash();
  });
  return sources;
}

std::vector<double> weights_of(const std::vector<MixtureSource>& sources) {
  std::vector<double> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return weights;
}

// The account of a source that is new to the run, or goes on.
SourceAccount account_of(const MixtureSource& source, const std::string& hash, const DataLedger& ledger) {
  const auto& data = source.dataset;
  const auto known = ledger.sources.find(hash);
  if (known == ledger.sources.end()) {
    for (const auto& [other_hash, other] : ledger.sources) {
      ATHANOR_CHECK_DATA(
          other.name != source.name,
          "source \"{}\" ({}) holds other data than this run has drawn from under that name ({} instances "
          "of {} tokens then, {} of {} now): its cursor would point elsewhere. Put back what was there, "
          "or list these as a source with another name, which begins anew",
          source.name, data.folder().string(), other.num_instances, other.seq_len, data.num_instances(),
          data.seq_len());
    }
    return {source.name, data.num_instances(), data.seq_len(), {}};
  }
  SourceAccount account = known->second;
  account.name = source.name;
  const auto& at = account.cursor;
  ATHANOR_CHECK_DATA(at.epoch >= 0 && at.next >= 0 && at.next < data.num_instances() &&
                         account.num_instances == data.num_instances() && account.seq_len == data.seq_len(),
                     "{}: no place (epoch {}, instance {} of {}) in {} instances; is it the data of this run?",
                     data.folder().string(), at.epoch, at.next, account.num_instances, data.num_instances());
  return account;
}

}  // namespace

std::string describe_position(const DataLedger& ledger) {
  std::vector<std::string> parts;
  for (const auto& [hash, share] : ledger.mix) {
    const auto& source = ledger.sources.at(hash);
    parts.push_back(fmt::format("{}: epoch {}, instance {} of {}", source.name, source.cursor.epoch, source.cursor.next,
                                source.num_instances));
  }
  return join(parts, "; ");
}

Mixture::Mixture(std::vector<MixtureSource> sources)
    : sources_(sorted_by_content(std::move(sources))), interleave_(weights_of(sources_)) {
  for (const auto& source : sources_) {
    const auto& data = source.dataset;
    hashes_.push_back(data.content_hash());
    const size_t n = hashes_.size();
    ATHANOR_CHECK_DATA(n < 2 || hashes_[n - 1] != hashes_[n - 2],
                       "{} and {} hold the same instances; list them once, with one weight",
                       sources_[n - 2].dataset.folder().string(), data.folder().string());
    ATHANOR_CHECK_DATA(
        data.seq_len() == seq_len(),
        "the sources of a mix must have instances of one length: those of {} have {} tokens, those of {} "
        "{}; prepare one of them again with the other's --seq-len",
        sources_[0].dataset.folder().string(), seq_len(), data.folder().string(), data.seq_len());
  }
}

int64_t Mixture::num_instances() const {
  int64_t total = 0;
  for (const auto& source : sources_) total += source.dataset.num_instances();
  return total;
}

DataLedger Mixture::enter(const DataLedger& ledger) const {
  DataLedger entered{ledger.sources, {}};
  bool underway = ledger.mix.size() == sources_.size();
  for (size_t i = 0; i < sources_.size(); ++i) {
    entered.sources[hashes_[i]] = account_of(sources_[i], hashes_[i], ledger);
    const auto share = ledger.mix.find(hashes_[i]);
    underway = underway && share != ledger.mix.end() && share->second.weight == interleave_.weights()[i];
    entered.mix[hashes_[i]] = {interleave_.weights()[i], 0};
  }
  if (underway) entered.mix = ledger.mix;
  return entered;
}

MixturePosition::MixturePosition(const Mixture& mixture, DataLedger ledger)
    : mixture_(mixture), begin_(std::move(ledger)) {
  for (const auto& hash : mixture_.hashes_) {
    drawn_.push_back(begin_.mix.at(hash).drawn);
    cursors_.push_back(begin_.sources.at(hash).cursor);
  }
}

Draw MixturePosition::next() {
  const size_t source = mixture_.interleave_.next(drawn_);
  DataCursor& cursor = cursors_[source];
  const Draw draw{source, cursor};
  if (++cursor.next == mixture_.sources_[source].dataset.num_instances()) cursor = {cursor.epoch + 1, 0};
  return draw;
}

DataLedger MixturePosition::ledger() const {
  DataLedger ledger = begin_;
  for (size_t i = 0; i < cursors_.size(); ++i) {
    ledger.mix.at(mixture_.hashes_[i]).drawn = drawn_[i];
    ledger.sources.at(mixture_.hashes_[i]).cursor = cursors_[i];
  }
  return ledger;
}

}  // namespace athanor
