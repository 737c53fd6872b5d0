#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::data {

/// Tells whether files of the same names hold the same samples: equal for copies, whatever their times of change are.
struct ContentsDigest {
  std::uint64_t sizes = 0;                ///< Of the sizes of files.
  std::optional<std::uint64_t> contents;  ///< Of what they hold; nothing where they are far away (Folders::are_far()).
  /// Of those that are far away: of their versions (ReadableFile::version()), which only those of the same place share,
  /// and of the names by which that place was given.
  struct Versions {
    std::uint64_t place = 0;
    std::uint64_t versions = 0;

    friend bool operator==(const Versions&, const Versions&) = default;
  };
  std::optional<Versions> versions{};
};

/// How much is read for it: a few seconds' worth.
struct DigestLimits {
  std::uint64_t whole_bytes = std::uint64_t{256} << 20;  ///< Sets up to here are read as a whole.
  std::uint64_t files = 10'000;                          ///< Of more, so many are looked at.
  std::uint64_t pieces = 10'000;                         ///< Of 4 KiB, that are read of a larger set.
};

/// Of the samples that open_samples() has made of `names`. Of a set that is too large to be read as a whole:
/// SampleSet::contents_checksum(), and pieces that are spread evenly over the files, at least one of each: its end,
/// where formats have checksums and tables. Where there are too many files, those that are spread evenly among them.
/// Errors are those of opening and reading files.
ContentsDigest digest_contents(const std::vector<std::string>& names, const FileOpener& open, const SampleSet& set,
                               const DigestLimits& limits = {});

}  // namespace gyre::data
