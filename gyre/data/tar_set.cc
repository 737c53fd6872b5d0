#include "gyre/data/tar_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/data/formats/tar.h"
#include "gyre/data/internal/block_ends.h"
#include "gyre/data/internal/parallel.h"

namespace gyre::data {
namespace {

constexpr std::array<std::string_view, 7> kIntegers = {"cls", "cls2", "class", "count", "index", "inx", "id"};
constexpr std::size_t kShortBytes = 64;      // What a label or an index has.
constexpr std::size_t kMostFeatures = 1024;  // A name is one for all samples; more than this are not feature names.

template <std::size_t Count>
bool is_one_of(const std::array<std::string_view, Count>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// "a/b.c/key.seg.png" is "a/b.c/key" and "seg.png"; nothing for files without a dot, and hidden ones.
std::optional<std::pair<std::string_view, std::string>> key_and_feature(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin || dot + 1 == name.size()) return std::nullopt;
  std::string feature(name.substr(dot + 1));
  for (char& c : feature) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::pair(name.substr(0, dot), std::move(feature));
}

std::optional<std::int64_t> integer_in(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

class TarSet::Reader : public SampleReader {
 public:
  Reader(const TarSet& set, std::shared_ptr<MemoryBudget> budget) : set_(set), stored_(std::move(budget)) {}

  Example read_sample(std::uint64_t index, StageTimes& times) override;
  std::string position() const override;
  std::size_t scratch_bytes() const override { return stored_.capacity_bytes(); }

 private:
  void add_feature(Example& sample, std::size_t number, std::span<const std::byte> value);
  void add_json(Example& sample, std::span<const std::byte> text);

  const TarSet& set_;
  ScratchBuffer stored_;
  std::deque<std::string> json_names_;  // Of the last sample; they stay where they are.
  std::optional<std::size_t> archive_;
  std::shared_ptr<const ReadableFile> open_;
  std::uint64_t index_ = 0;
};

Example TarSet::Reader::read_sample(std::uint64_t index, StageTimes& times) {
  StageClock clock(times);
  index_ = index;
  const std::size_t archive = set_.archive_of(index);
  if (archive_ != archive) {
    archive_.reset();
    open_ = set_.open_files_.get(set_.archives_[archive].file, set_.archives_[archive].name);
    archive_ = archive;
  }
  // The files of a sample are neighbours: one read for all.
  const auto parts = set_.parts_of(index);
  const FileRange range = range_of(parts);
  const std::uint64_t first = range.offset_bytes;
  const auto bytes = stored_.take(static_cast<std::size_t>(range.size_bytes));
  open_->read_at(first, bytes);
  clock.finish(Stage::kSource);
  json_names_.clear();
  Example sample;
  for (const Part& part : parts) {
    add_feature(
        sample, part.feature,
        bytes.subspan(static_cast<std::size_t>(part.offset_bytes - first), static_cast<std::size_t>(part.size_bytes)));
  }
  sample.add("__key__", Feature::of_bytes(as_bytes(set_.keys_.at(index))));
  clock.finish(Stage::kDecode);
  return sample;
}

void TarSet::Reader::add_feature(Example& sample, std::size_t number, std::span<const std::byte> value) {
  const std::string& name = set_.features_[number];
  const auto integer = is_one_of(kIntegers, name) ? integer_in(as_text(value)) : std::nullopt;
  const Feature feature = integer ? Feature::of_int(*integer) : Feature::of_bytes(value);
  sample.add(name, feature);
  // Of two images the one that is read.
  const ImageName image = set_.feature_images_[number];
  const bool unread = image == ImageName::kNotRead && sample.find("image") == nullptr;
  if (image == ImageName::kRead || unread) sample.add("image", feature);
  if (name == "cls") sample.add("label", feature);
  if (name == "json") add_json(sample, value);
}

void TarSet::Reader::add_json(Example& sample, std::span<const std::byte> text) {
  const auto json = nlohmann::json::parse(as_text(text), nullptr, false);
  if (!json.is_object()) return;  // It stays a byte string.
  for (const auto& [key, value] : json.items()) {
    if (!value.is_number_integer()) continue;
    // Of those above 2^63 - 1 no int64 can be made.
    if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) continue;
    json_names_.push_back("json/" + key);
    sample.add(json_names_.back(), Feature::of_int(value.get<std::int64_t>()));
  }
}

std::string TarSet::Reader::position() const {
  if (!archive_) return "no sample";
  const Archive& archive = set_.archives_[*archive_];
  return fmt::format("{}, sample {}, whose contents begin at byte {}", archive.name, index_ - archive.first,
                     set_.parts_of(index_).front().offset_bytes);
}

TarSet::TarSet(std::vector<std::string> names, FileOpener open, int threads)
    : open_files_(std::move(open), names.size()) {
  std::vector<std::vector<TarMember>> members(names.size());
  internal::for_each_index(names.size(), threads, "reading archives",
                           [&](std::size_t i) { members[i] = index_tar(*open_files_.open_once(i, names[i])); });
  for (std::size_t i = 0; i < names.size(); ++i) {
    add_archive(i, names[i], members[i]);
    members[i] = {};
  }
  if (samples_.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} archive{} ({}, …) hold no sample: files called like 000017.jpg and 000017.cls are needed",
                    names.size(), names.size() == 1 ? "" : "s", names.empty() ? "none" : names.front()));
  }
  samples_.push_back(parts_.size());
}

void TarSet::add_archive(std::size_t file, const std::string& name, const std::vector<TarMember>& members) {
  const std::uint64_t first = samples_.size();
  std::string_view last_key;
  for (const TarMember& member : members) {
    const auto key = key_and_feature(member.name);
    if (!key) continue;
    if (samples_.size() == first || key->first != last_key) {
      samples_.push_back(parts_.size());
      keys_.add(key->first);
    }
    last_key = key->first;
    const std::uint32_t feature = feature_number(key->second);
    const auto sample = std::span(parts_).subspan(static_cast<std::size_t>(samples_.back()));
    if (std::ranges::find(sample, feature, &Part::feature) != sample.end()) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{}: two files of one sample are called {} (the second one's "
                                                       "contents begin at byte {})",
                                                       name, member.name, member.offset_bytes));
    }
    parts_.push_back({member.offset_bytes, member.size_bytes, feature});
  }
  if (samples_.size() > first) archives_.push_back({file, name, first});
}

std::size_t TarSet::archive_of(std::uint64_t sample) const {
  const auto behind = std::ranges::upper_bound(archives_, sample, {}, &Archive::first);
  return static_cast<std::size_t>(behind - archives_.begin()) - 1;
}

std::uint64_t TarSet::end_of(std::size_t archive) const {
  return archive + 1 < archives_.size() ? archives_[archive + 1].first : count();
}

std::uint64_t TarSet::contents_checksum_of(std::size_t archive) const {
  const auto file = open_files_.open_once(archives_[archive].file, archives_[archive].name);
  std::array<std::byte, kShortBytes> text;
  std::uint64_t checksum = 0;
  for (std::uint64_t sample = archives_[archive].first; sample < end_of(archive); ++sample) {
    checksum = xxh3_64(as_bytes(keys_.at(sample)), checksum);
    for (const Part& part : parts_of(sample)) {
      checksum = xxh3_64(as_bytes(fmt::format("{} {}", features_[part.feature], part.size_bytes)), checksum);
      if (part.size_bytes > text.size()) continue;
      const auto bytes = std::span(text).first(static_cast<std::size_t>(part.size_bytes));
      file->read_at(part.offset_bytes, bytes);
      checksum = xxh3_64(bytes, checksum);
    }
  }
  return checksum;
}

std::uint64_t TarSet::contents_checksum() const {
  constexpr int kThreads = 8;  // They wait for the disk.
  std::vector<std::uint64_t> checksums(archives_.size());
  internal::for_each_index(archives_.size(), kThreads, "comparing archives",
                           [&](std::size_t i) { checksums[i] = contents_checksum_of(i); });
  return xxh3_64(std::as_bytes(std::span(checksums)));
}

std::string TarSet::name_of(std::uint64_t sample) const {
  return fmt::format("{}:{}", archives_[archive_of(sample)].name, keys_.at(sample));
}

std::uint32_t TarSet::feature_number(const std::string& name) {
  const auto found = std::ranges::find(features_, name);
  if (found != features_.end()) return static_cast<std::uint32_t>(found - features_.begin());
  if (features_.size() == kMostFeatures) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the files of the archives have more than {} different endings ({}, {}, …): up to the first "
                    "dot a name is the sample's, behind it the feature's",
                    kMostFeatures, features_[0], features_[1]));
  }
  features_.push_back(name);
  const bool plain = name.find('.') == std::string::npos;  // "seg.png" is a feature of its own.
  feature_images_.push_back(plain ? image_name("image." + name) : ImageName::kNoImage);
  return static_cast<std::uint32_t>(features_.size() - 1);
}

SampleBlocks TarSet::blocks() const {
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 0; i < archives_.size(); ++i) {
    const std::uint64_t first = archives_[i].first;
    const std::uint64_t end = end_of(i);
    internal::append_blocks(ends, end - first, [&](std::uint64_t sample) {
      const Part& last = parts_[static_cast<std::size_t>(samples_[static_cast<std::size_t>(first + sample) + 1]) - 1];
      return last.offset_bytes + last.size_bytes;
    });
  }
  return internal::blocks_of(std::move(ends), 0);
}

std::span<const TarSet::Part> TarSet::parts_of(std::uint64_t sample) const {
  const auto first = static_cast<std::size_t>(samples_[static_cast<std::size_t>(sample)]);
  const auto end = static_cast<std::size_t>(samples_[static_cast<std::size_t>(sample) + 1]);
  return std::span(parts_).subspan(first, end - first);
}

FileRange TarSet::range_of(std::span<const Part> parts) {
  const std::uint64_t first = parts.front().offset_bytes;
  return {.offset_bytes = first, .size_bytes = parts.back().offset_bytes + parts.back().size_bytes - first};
}

void TarSet::will_read(std::span<const std::uint64_t> samples) const {
  for (const std::uint64_t sample : samples) {
    const Archive& archive = archives_[archive_of(sample)];
    const FileRange range = range_of(parts_of(sample));
    open_files_.get(archive.file, archive.name)->will_read({&range, 1});
  }
}

std::unique_ptr<SampleReader> TarSet::make_reader(std::shared_ptr<MemoryBudget> budget) const {
  return std::make_unique<Reader>(*this, std::move(budget));
}

}  // namespace gyre::data
