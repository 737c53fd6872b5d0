#include "gyre/data/contents_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/data/internal/parallel.h"

namespace gyre::data {
namespace {

constexpr std::uint64_t kPieceBytes = 4096;
constexpr std::uint64_t kDigestedAtOnce = std::uint64_t{1} << 20;
constexpr int kThreads = 8;  // Most of them wait for a disk or a server.

/// All of `count` numbers from 0, or so many of them that are spread evenly.
std::vector<std::uint64_t> spread(std::uint64_t count, std::uint64_t most) {
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(std::min(count, most)));
  for (std::uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = count <= most ? i : i * count / most;
  return numbers;
}

/// Of a folder with a file for each sample, the files of samples.
std::vector<std::string> files_to_compare(const std::vector<std::string>& names, const Folders& folders,
                                          const SampleSet& set, std::uint64_t most) {
  std::vector<std::string> files;
  const bool is_folder = folders.kind(names.front()) == FileKind::kFolder;
  for (const std::uint64_t number : spread(is_folder ? set.count() : names.size(), most)) {
    files.push_back(is_folder ? fmt::format("{}/{}", names.front(), set.name_of(number)) : names[number]);
  }
  return files;
}

std::uint64_t checksum_of(const ReadableFile& file, FileRange range, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  while (range.size_bytes > 0) {
    bytes.resize(static_cast<std::size_t>(std::min(range.size_bytes, kDigestedAtOnce)));
    file.read_at(range.offset_bytes, bytes);
    seed = xxh3_64(bytes, seed);
    range.offset_bytes += bytes.size();
    range.size_bytes -= bytes.size();
  }
  return seed;
}

/// Of so many pieces of a file, the last of which is its end; of a short file as a whole.
std::uint64_t checksum_of_pieces(const ReadableFile& file, std::uint64_t pieces) {
  const std::uint64_t size = file.size_bytes();
  if (size <= pieces * kPieceBytes) return checksum_of(file, {.size_bytes = size}, 0);
  std::uint64_t checksum = 0;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const std::uint64_t offset = (size - kPieceBytes) / pieces * i;
    const bool last = i + 1 == pieces;
    checksum = checksum_of(file, {last ? size - kPieceBytes : offset, kPieceBytes}, checksum);
  }
  return checksum;
}

std::uint64_t checksum_of(const std::vector<std::uint64_t>& numbers) {
  return xxh3_64(std::as_bytes(std::span(numbers)));
}

}  // namespace

ContentsDigest digest_contents(const std::vector<std::string>& names, const FileOpener& open, const SampleSet& set,
                               const DigestLimits& limits) {
  const std::vector<std::string> files = files_to_compare(names, open.folders(), set, limits.files);
  std::vector<std::uint64_t> numbers(files.size());  // Of each file: its size, then its checksum.
  const auto for_each_file = [&](const auto& number_of) {
    internal::for_each_index(files.size(), kThreads, "comparing files",
                             [&](std::size_t i) { numbers[i] = number_of(*open(files[i])); });
  };
  for_each_file([](const ReadableFile& file) { return file.size_bytes(); });
  const std::uint64_t sizes = checksum_of(numbers);
  if (open.folders().are_far()) {
    for_each_file([](const ReadableFile& file) { return xxh3_64(as_bytes(file.version())); });
    const std::uint64_t place = xxh3_64(as_bytes(fmt::format("{}", fmt::join(names, "\n"))));
    return {.sizes = sizes,
            .contents = std::nullopt,
            .versions = ContentsDigest::Versions{.place = place, .versions = checksum_of(numbers)}};
  }
  const std::uint64_t bytes = std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
  const bool whole = bytes <= limits.whole_bytes && files.size() < limits.files;
  const std::uint64_t pieces = std::max<std::uint64_t>(1, limits.pieces / files.size());
  for_each_file([&](const ReadableFile& file) {
    return whole ? checksum_of(file, {.size_bytes = file.size_bytes()}, 0) : checksum_of_pieces(file, pieces);
  });
  if (!whole) numbers.push_back(set.contents_checksum());
  return {.sizes = sizes, .contents = checksum_of(numbers)};
}

}  // namespace gyre::data
