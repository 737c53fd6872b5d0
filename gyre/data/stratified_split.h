#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gyre/data/sample_set.h"

namespace gyre::data {

/// The numbers of a set's samples in two parts, each ascending: together all, none twice.
struct StratifiedSplit {
  std::vector<std::uint64_t> training;
  std::vector<std::uint64_t> validation;
};

/// Holds out `share` (0 to 1) of each class: of its n samples round(share * n), but at least one of two or more, and
/// never all. Which ones depends on `seed` and their names alone: those for which XXH3 of the name, keyed by the seed,
/// is lowest. So a sample stays where it is when others are added, for the most part. Pure.
StratifiedSplit stratified_split(std::span<const std::uint32_t> labels,
                                 const std::function<std::string_view(std::uint64_t)>& name_of, double share,
                                 std::uint64_t seed);

struct SplitSets {
  std::shared_ptr<const SampleSet> training;
  std::shared_ptr<const SampleSet> validation;
};

/// The same for a set whose labels are known without reading it. Error(kUnsupported) for other sets, kInvalidArgument
/// where a part would be empty.
SplitSets split_set(const std::shared_ptr<const SampleSet>& set, double share, std::uint64_t seed);

}  // namespace gyre::data
