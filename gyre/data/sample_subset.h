#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/data/sample_set.h"

namespace gyre::data {

/// Some samples of a set as a set of their own, numbered from 0.
class SampleSubset : public SampleSet {
 public:
  /// `samples`: numbers in `set`, ascending, at least one.
  SampleSubset(std::shared_ptr<const SampleSet> set, std::vector<std::uint64_t> samples);

  std::uint64_t count() const override { return samples_.size(); }
  SampleBlocks blocks() const override;
  std::vector<std::string> classes() const override { return set_->classes(); }
  std::span<const std::uint32_t> labels() const override { return labels_; }
  std::string_view listing() const override { return listing_; }
  /// Of the whole set.
  std::uint64_t contents_checksum() const override { return set_->contents_checksum(); }
  std::string name_of(std::uint64_t sample) const override { return set_->name_of(number_of(sample)); }
  std::string left_out() const override { return set_->left_out(); }
  std::string advice_on_full_shuffle(std::uint64_t budget_bytes) const override {
    return set_->advice_on_full_shuffle(budget_bytes);
  }
  void will_read(std::span<const std::uint64_t> samples) const override;
  std::unique_ptr<SampleReader> make_reader(std::shared_ptr<MemoryBudget> budget) const override;

 private:
  class Reader;

  std::uint64_t number_of(std::uint64_t sample) const { return samples_.at(static_cast<std::size_t>(sample)); }

  std::shared_ptr<const SampleSet> set_;
  std::vector<std::uint64_t> samples_;
  std::vector<std::uint32_t> labels_;
  std::string listing_;
};

/// The first `count` samples of `set`, which has at least as many; the set itself if it has no more.
std::shared_ptr<const SampleSet> first_samples(std::shared_ptr<const SampleSet> set, std::uint64_t count);

}  // namespace gyre::data
