#include "workloads/training/sample_digests.h"

#include <fmt/format.h>

#include <utility>

#include "gyre/data/contents_digest.h"

namespace gyre::training {

DigestSamples digests_of(std::vector<std::string> files, data::FileOpener open,
                         std::shared_ptr<const data::SampleSet> samples, data::SampleOptions how) {
  return [files = std::move(files), open = std::move(open), samples = std::move(samples), how = std::move(how)] {
    const data::ContentsDigest found = data::digest_contents(files, open, *samples);
    const auto& versions = found.versions;
    return SampleDigests{.names = fmt::format("{:016x}", data::files_checksum(files, open, *samples, how)),
                         .sizes = fmt::format("{:016x}", found.sizes),
                         .contents = found.contents ? fmt::format("{:016x}", *found.contents) : "",
                         .place = versions ? fmt::format("{:016x}", versions->place) : "",
                         .versions = versions ? fmt::format("{:016x}", versions->versions) : ""};
  };
}

}  // namespace gyre::training
