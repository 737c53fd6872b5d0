#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/stage_folder.h"
#include "gyre/store/staging/stage_log.h"

namespace gyre::store {

/// What becomes of files that an earlier staging has brought and that the set does not have (any more).
enum class Leftovers {
  kStay,            ///< They are named alone.
  kRemoveOfTheSet,  ///< Those of the same set are removed; see set_of().
  kRemoveAll,       ///< Those of any set are: the folder is given away as this set.
};

/// What was found in a folder that is no file of a manifest.
struct FoundLeftovers {
  std::vector<std::string> removed{};  ///< Brought by an earlier staging, and unchanged since.
  std::vector<std::string> others{};   ///< All other files, but hidden ones; no more than kMostOthers.
};
inline constexpr std::size_t kMostOthers = 1'000;

/// Names the set that is staged: its sources, its part of several nodes, and `selection`, in which the caller says how
/// the objects were chosen. Two stagings of one set differ in what the sources hold, or in how it is decompressed.
std::uint64_t set_of(const Manifest& manifest, const std::string& selection);

/// Removes what the rule says, with the folders that become empty. To be called when all of `manifest` is there.
FoundLeftovers settle_leftovers(const Manifest& manifest, std::uint64_t set, Leftovers rule, const StageFolder& folder,
                                const StageLog& log);

}  // namespace gyre::store
