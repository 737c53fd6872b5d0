#include "gyre/data/sample_subset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gyre/base/check.h"

namespace gyre::data {

class SampleSubset::Reader : public SampleReader {
 public:
  Reader(const SampleSubset& subset, std::unique_ptr<SampleReader> reader)
      : subset_(subset), reader_(std::move(reader)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override {
    return reader_->read_sample(subset_.number_of(index), times);
  }
  void expect_neighbours(const Upcoming& upcoming) override {
    reader_->expect_neighbours([this, upcoming] {
      std::vector<std::uint64_t> samples = upcoming();
      for (std::uint64_t& sample : samples) sample = subset_.number_of(sample);
      return samples;
    });
  }
  std::string position() const override { return reader_->position(); }
  std::size_t scratch_bytes() const override { return reader_->scratch_bytes(); }
  std::size_t shared_bytes() const override { return reader_->shared_bytes(); }
  void let_go() override { reader_->let_go(); }

 private:
  const SampleSubset& subset_;
  std::unique_ptr<SampleReader> reader_;
};

SampleSubset::SampleSubset(std::shared_ptr<const SampleSet> set, std::vector<std::uint64_t> samples)
    : set_(std::move(set)), samples_(std::move(samples)) {
  GYRE_CHECK((!samples_.empty() && samples_.back() < set_->count()));
  const auto labels = set_->labels();
  const bool listed = !set_->listing().empty();
  for (const std::uint64_t sample : samples_) {
    if (!labels.empty()) labels_.push_back(labels[static_cast<std::size_t>(sample)]);
    if (listed) listing_ += set_->name_of(sample);
  }
}

SampleBlocks SampleSubset::blocks() const {
  SampleBlocks whole = set_->blocks();
  if (!whole.ends) return whole;
  auto ends = std::make_shared<std::vector<std::uint64_t>>();
  auto behind = samples_.begin();
  for (const std::uint64_t end : *whole.ends) {
    behind = std::lower_bound(behind, samples_.end(), end);
    const auto here = static_cast<std::uint64_t>(behind - samples_.begin());
    if (here > (ends->empty() ? 0 : ends->back())) ends->push_back(here);
  }
  return {.ends = std::move(ends), .largest_bytes = whole.largest_bytes};
}

void SampleSubset::will_read(std::span<const std::uint64_t> samples) const {
  std::vector<std::uint64_t> numbers;
  for (const std::uint64_t sample : samples) numbers.push_back(number_of(sample));
  set_->will_read(numbers);
}

std::unique_ptr<SampleReader> SampleSubset::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<Reader>(*this, set_->make_reader(std::move(budget)));
}

std::shared_ptr<const SampleSet> first_samples(std::shared_ptr<const SampleSet> set, std::uint64_t count) {
  if (count == set->count()) return set;
  std::vector<std::uint64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  return std::make_shared<SampleSubset>(std::move(set), std::move(samples));
}

}  // namespace gyre::data
