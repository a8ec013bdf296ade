#include "dataset/mixture.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace athanor::inline dataset {
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

using KnownSource = std::map<std::string, SourceAccount>::const_iterator;

// Returns the entry of `data`, in its present state or before it grew.
KnownSource find_known(const Dataset& data, const DataLedger& ledger) {
  const auto same = ledger.sources.find(data.content_hash());
  if (same != ledger.sources.end()) return same;
  return std::find_if(ledger.sources.begin(), ledger.sources.end(), [&](const auto& entry) {
    return data.instances_when(entry.first) == entry.second.num_instances;
  });
}

void refuse_known_name(const MixtureSource& source, const DataLedger& ledger) {
  for (const auto& [hash, other] : ledger.sources) {
    ATHANOR_CHECK_DATA(other.name != source.name,
                       "source \"{}\" ({}) holds other data than this run has drawn from under that name ({} instances "
                       "of {} tokens then, {} of {} now): its cursor would point elsewhere. Put the earlier data back, "
                       "or list these as a source with another name, which begins at its start",
                       source.name, source.dataset.folder().string(), other.num_instances, other.seq_len,
                       source.dataset.num_instances(), source.dataset.seq_len());
  }
}

// Returns the account of a source that continues.
SourceAccount continued(const MixtureSource& source, SourceAccount account) {
  const auto& data = source.dataset;
  const auto& [epoch, next] = account.cursor;
  ATHANOR_CHECK_DATA(epoch >= 0 && next >= 0 && next < account.num_instances &&
                         account.num_instances <= data.num_instances() && account.seq_len == data.seq_len() &&
                         std::is_sorted(account.grown_from.begin(), account.grown_from.end()) &&
                         (account.grown_from.empty() ||
                          (account.grown_from.front() > 0 && account.grown_from.back() < account.num_instances)),
                     "{}: no place (epoch {}, instance {} of {}) in {} instances; is it the data of this run?",
                     data.folder().string(), epoch, next, account.num_instances, data.num_instances());
  account.name = source.name;
  if (data.num_instances() == account.num_instances) return account;
  // An epoch that has not begun needs no earlier state.
  if (next > 0 || !account.grown_from.empty()) account.grown_from.push_back(account.num_instances);
  account.num_instances = data.num_instances();
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

DataLedger Mixture::enter(const DataLedger& ledger) const {
  DataLedger entered{ledger.sources, {}, ledger.order};
  bool underway = ledger.mix.size() == sources_.size();
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto& source = sources_[i];
    const int64_t weight = interleave_.weights()[i];
    const auto known = find_known(source.dataset, ledger);
    if (known == ledger.sources.end()) {
      refuse_known_name(source, ledger);
      entered.sources[hashes_[i]] = {source.name, source.dataset.num_instances(), seq_len(), {}, 0, {}};
      underway = false;
    } else {
      entered.sources.erase(known->first);
      entered.sources[hashes_[i]] = continued(source, known->second);
      const auto share = ledger.mix.find(known->first);
      underway = underway && share != ledger.mix.end() && share->second.weight == weight;
      if (underway) entered.mix[hashes_[i]] = share->second;
    }
  }
  if (underway) return entered;
  for (size_t i = 0; i < sources_.size(); ++i) entered.mix[hashes_[i]] = {interleave_.weights()[i], 0};
  return entered;
}

MixturePosition::MixturePosition(const Mixture& mixture, DataLedger ledger)
    : mixture_(mixture), begin_(std::move(ledger)) {
  for (const auto& hash : mixture_.hashes_) {
    drawn_.push_back(begin_.mix.at(hash).drawn);
    accounts_.push_back(begin_.sources.at(hash));
  }
}

Draw MixturePosition::next() {
  const size_t source = mixture_.interleave_.next(drawn_);
  SourceAccount& account = accounts_[source];
  auto& [epoch, next] = account.cursor;
  Draw draw{source, {epoch, 0, account.num_instances}, next};
  Stretch& stretch = draw.stretch;
  for (const int64_t instances : account.grown_from) {
    if (next < instances) {
      stretch.size = instances - stretch.first_row;
      break;
    }
    stretch.first_row = instances;
    stretch.size = account.num_instances - instances;
  }
  draw.index = next - stretch.first_row;
  ++account.drawn;
  if (++next == account.num_instances) {
    account.cursor = {epoch + 1, 0};
    account.grown_from.clear();
  }
  return draw;
}

DataLedger MixturePosition::ledger() const {
  DataLedger ledger = begin_;
  for (size_t i = 0; i < accounts_.size(); ++i) {
    ledger.mix.at(mixture_.hashes_[i]).drawn = drawn_[i];
    ledger.sources.at(mixture_.hashes_[i]) = accounts_[i];
  }
  return ledger;
}

}  // namespace athanor::inline dataset
