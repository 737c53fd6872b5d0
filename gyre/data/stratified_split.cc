#include "gyre/data/stratified_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/sample_subset.h"

namespace gyre::data {
namespace {

/// Of `count` samples of one class.
std::size_t held_out(std::size_t count, double share) {
  if (count < 2) return 0;
  const auto wanted = static_cast<std::size_t>(std::llround(share * static_cast<double>(count)));
  return std::clamp<std::size_t>(wanted, 1, count - 1);
}

}  // namespace

StratifiedSplit stratified_split(std::span<const std::uint32_t> labels,
                                 const std::function<std::string_view(std::uint64_t)>& name_of, double share,
                                 std::uint64_t seed) {
  struct Ranked {
    std::uint64_t hash;
    std::string_view name;  // Decides where hashes are equal.
    std::uint64_t sample;
  };
  std::map<std::uint32_t, std::vector<Ranked>> by_class;
  for (std::uint64_t sample = 0; sample < labels.size(); ++sample) {
    const std::string_view name = name_of(sample);
    by_class[labels[static_cast<std::size_t>(sample)]].push_back({xxh3_64(as_bytes(name), seed), name, sample});
  }
  StratifiedSplit split;
  for (auto& [label, samples] : by_class) {
    std::ranges::sort(samples, [](const Ranked& a, const Ranked& b) {
      return std::tie(a.hash, a.name, a.sample) < std::tie(b.hash, b.name, b.sample);
    });
    const std::size_t out = held_out(samples.size(), share);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      (i < out ? split.validation : split.training).push_back(samples[i].sample);
    }
  }
  std::ranges::sort(split.training);
  std::ranges::sort(split.validation);
  return split;
}

SplitSets split_set(const std::shared_ptr<const SampleSet>& set, double share, std::uint64_t seed) {
  const auto labels = set->labels();
  if (labels.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "only a folder with a folder for each class can be split: of other files the classes are not known "
                "before they are read; write a validation set of its own");
  }
  std::vector<std::string> names;
  names.reserve(labels.size());
  for (std::uint64_t sample = 0; sample < labels.size(); ++sample) names.push_back(set->name_of(sample));
  const auto name_of = [&](std::uint64_t sample) -> std::string_view {
    return names[static_cast<std::size_t>(sample)];
  };
  StratifiedSplit split = stratified_split(labels, name_of, share, seed);
  if (split.validation.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("nothing can be held out of {} images: no class has two", labels.size()));
  }
  return {std::make_shared<SampleSubset>(set, std::move(split.training)),
          std::make_shared<SampleSubset>(set, std::move(split.validation))};
}

}  // namespace gyre::data
