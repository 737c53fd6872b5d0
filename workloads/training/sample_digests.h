#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gyre/data/open_samples.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/sample_set.h"

namespace gyre::training {

/// What tells whether two runs read the same samples, as text for checkpoints.
struct SampleDigests {
  std::string names;       ///< data::files_checksum().
  std::string sizes;       ///< These two are those of data::ContentsDigest.
  std::string contents;    ///< Empty where the files are far away.
  std::string place{};     ///< Where that is; else empty.
  std::string versions{};  ///< Of the files, there: in other places the same files have others.
};

/// Computes them when it is called, which reads from the files: one rank does that for all.
using DigestSamples = std::function<SampleDigests()>;

/// Of `samples`, which data::open_samples() has made of `files`, or of a part of them.
DigestSamples digests_of(std::vector<std::string> files, data::FileOpener open,
                         std::shared_ptr<const data::SampleSet> samples, data::SampleOptions how);

}  // namespace gyre::training
